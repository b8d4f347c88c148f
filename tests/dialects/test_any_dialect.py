"""A conversation is one session in whatever dialect it is told: each turn computes only what is new in it."""

import itertools

import httpx
import pytest

from tests.conftest import Start
from tests.dialects.turns import DIALECTS, Called, Result, Said, Turn, ask

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("begun", "gone_on"), [*itertools.permutations(DIALECTS, 2)])
def test_a_session_begun_in_one_dialect_goes_on_in_another_and_back(
    http: httpx.Client, begun: str, gone_on: str
) -> None:
    told: list[Turn] = [Said("user", f"the weather in {begun.title()}To{gone_on.title()}")]
    asked = ask(http, begun, told)
    assert isinstance(asked.turn, Called)
    told += [asked.turn, Result(asked.turn.id, "sun")]
    answered = ask(http, gone_on, told)
    assert answered.turn == Said("assistant", "Take a hat: sun")
    told += [answered.turn, Said("user", "thanks")]
    thanked = ask(http, begun, told)
    assert thanked.turn == Said("assistant", "thanks")
    assert {answered.session, thanked.session} == {asked.session}
    assert answered.computes_only_what_is_new
    assert thanked.computes_only_what_is_new


@pytest.mark.parametrize("begun", DIALECTS)
def test_a_session_of_any_dialect_is_a_conversation_of_responses(http: httpx.Client, begun: str) -> None:
    first = ask(http, begun, [Said("user", f"one, begun in {begun}")])
    named = {"input": "two", "conversation": first.session}
    answer = http.post("/v1/responses", json={**DIALECTS["responses"].body([]), **named}).raise_for_status().json()
    went_on = DIALECTS["responses"].read(answer)
    assert (went_on.turn, went_on.session) == (Said("assistant", "two"), first.session)
    assert went_on.computes_only_what_is_new


def test_with_a_real_model_too(start: Start, embedded_model: str) -> None:
    told: list[Turn] = []
    with start(model=embedded_model).client() as http:
        for number, dialect in enumerate([*DIALECTS, *DIALECTS][:5]):
            told.append(Said("user", f"My name is Ada {number}. Say hello."))
            answer = ask(http, dialect, told)
            told.append(answer.turn)
            assert number == 0 or answer.computes_only_what_is_new, (dialect, answer.usage)
            assert answer.usage["miss_reason"] is None
        (session,) = http.get("/v1/sessions", params={"implicit": 1}).json()["data"]
        assert session["num_items"] == 1 + len(told)
