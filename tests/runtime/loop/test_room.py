"""The paragraph `Room`: how much of a result the model reads, and what does not fit at all."""

import re
import threading
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ContextTooLong
from tenuto.runtime.loop.amounts import DIGESTED
from tenuto.runtime.loop.events import ToolReturned
from tenuto.runtime.loop.ledgers import Prompt
from tenuto.runtime.loop.room import ANSWER_TOKENS, check_length, fit
from tenuto.sessions import visible
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, UserItem, item_to_json
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import RunStatus
from tenuto.sessions.tokens import Tokens
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Process, asks, call, client_tools, codec, history, turn, until
from tests.runtime.loop.test_match import waits_for
from tests.runtime.loop.test_one_open_run import results
from tests.runtime.loop.tools import Tools, text

CELLS = 4000
SMALL = {"cells": CELLS}
ENOUGH = {"tool_contains": "00000", "text": "Enough."}
OMITTED = re.compile(r"\n\[\.\.\. (\d+) tokens omitted \.\.\.\]\n")


def read(size: int) -> dict[str, object]:
    return asks("read", call("big__read", size=size))


async def result(process: Process, id: str = "s") -> ToolResultItem:
    found = [one for one in await process.items(id) if isinstance(one, ToolResultItem)]
    return found[-1]


async def test_a_result_that_fits_is_read_whole(open_process: Open) -> None:
    process = await open_process(read(100), ENOUGH, script=SMALL, servers=["big"])
    assert (await process.ask("read")).text == "Enough."
    assert (await result(process)).shown is None


@pytest.mark.parametrize("size", [5_000, 100_000])
async def test_of_a_long_result_the_model_reads_head_and_tail(open_process: Open, size: int) -> None:
    process = await open_process(read(size), ENOUGH, script=SMALL, servers=["big"])
    done = await process.ask("read")
    assert (done.status, done.text) == (RunStatus.COMPLETED, "Enough.")
    item = await result(process)
    assert item.text == text(size), "the whole stays in the item"
    shown = item.model_text
    found = OMITTED.search(shown)
    assert found is not None
    head, tail = shown[: found.start()], shown[found.end() :]
    assert item.text.startswith(head)
    assert item.text.endswith(tail)
    assert int(found[1]) == size - len(head) - len(tail)
    left = CELLS - done.usage.rounds[0].prompt - done.usage.rounds[0].sampled
    assert len(codec().tokenize(shown)) <= (left - ANSWER_TOKENS) / 2
    assert f"<|tool|>{shown}<|end|>" in await process.tokens()


async def test_each_result_of_a_round_has_its_own_half(open_process: Open) -> None:
    both = asks("read", call("big__read", size=9_000), call("big__read", size=9_000))
    process = await open_process(both, ENOUGH, script=SMALL, servers=["big"])
    assert (await process.ask("read")).text == "Enough."
    first, second = (one for one in await process.items() if isinstance(one, ToolResultItem))
    assert len(first.model_text) > len(second.model_text) > 200


async def test_a_result_that_the_client_brings_is_fitted_too(open_process: Open) -> None:
    process = await open_process(asks("weather?", call("weather", city="Oslo")), ENOUGH, script=SMALL)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, text(50_000)))
    assert done.text == "Enough."
    assert OMITTED.search((await result(process)).model_text)


async def test_a_client_that_repeats_the_whole_result_goes_on_with_what_was_read(open_process: Open) -> None:
    process = await open_process(asks("weather?", call("weather", city="Oslo")), ENOUGH, script=SMALL)
    paused = await process.ask("weather?", tools=client_tools())
    await process.ask(results(paused, text(50_000)))
    told = [*history(await process.items()), UserItem("and?")]
    again = await process.ask(told, tools=client_tools())
    assert again.usage.rounds[0].miss_reason is None
    assert again.usage.rounds[0].computed == again.usage.rounds[0].new


async def test_a_result_that_does_not_fit_at_all_ends_the_run(open_process: Open) -> None:
    process = await open_process(read(2_000), script=SMALL, servers=["big"])
    filler = UserItem("y" * 3_450)
    done = await process.ask([filler, UserItem("read")])
    assert (done.status, done.stop_reason) == (RunStatus.INCOMPLETE, "length")
    item = await result(process)
    assert (item.text, item.shown) == (text(2_000), "")
    assert [one.status for one in done.server_calls] == ["completed"]


async def test_an_answer_that_fills_the_context_ends_by_length(open_process: Open) -> None:
    process = await open_process({"user": "long", "text": "x" * 4_000}, script={"cells": 1_000}, servers=[])
    done = await process.ask("long")
    assert (done.status, done.stop_reason) == (RunStatus.INCOMPLETE, "length")
    assert done.usage.prompt + done.usage.completion == 1_000


async def test_a_prompt_that_is_too_long_leaves_the_session_unchanged(open_process: Open) -> None:
    process = await open_process(script={"cells": 1_000}, servers=[])
    for number in range(3):
        await process.ask(f"{number}" * 100)
    before = await process.session()
    items, ledgers = list(before.items), {name: ledger.copy(99) for name, ledger in before.ledgers.items()}
    with pytest.raises(ContextTooLong) as raised:
        await process.ask("z" * 500)
    session = await process.session()
    assert (session.items, session.ledgers, session.open_run) == (items, ledgers, None)
    assert raised.value.limit == 1_000
    assert raised.value.prompt_tokens > 1_000
    assert (await process.ask("ok")).text == "ok"


async def test_the_fork_point_that_it_names_would_fit(open_process: Open) -> None:
    short = {"user_contains": "zzz", "text": "ok"}
    process = await open_process(short, script={"cells": 1_200}, servers=[])
    for number in range(4):
        await process.ask(f"{number}" * 100)
    with pytest.raises(ContextTooLong) as raised:
        await process.ask("z" * 400)
    at = raised.value.fork_at
    assert at is not None
    assert isinstance((await process.items())[at], UserItem)
    await process.runner.fork_session(ALICE, "s", at, "twin")
    assert (await process.ask("z" * 400, "twin")).status is RunStatus.COMPLETED


async def test_a_preview_is_held_to_the_context_as_its_turn_is(open_process: Open) -> None:
    process = await open_process(script={"cells": 1_000}, servers=[])
    for number in range(3):
        await process.ask(f"{number}" * 100)
    for words in ("z" * 500, "z" * 5_000):
        with pytest.raises(ContextTooLong) as asked:
            await process.ask(words)
        with pytest.raises(ContextTooLong) as told:
            await process.runner.preview(turn(words))
        assert (str(told.value), told.value.data) == (str(asked.value), asked.value.data)


async def test_a_first_prompt_that_is_too_long_names_no_fork_and_makes_no_session(open_process: Open) -> None:
    process = await open_process(script={"cells": 1_000}, servers=[])
    with pytest.raises(ContextTooLong) as raised:
        await process.ask("z" * 2_000)
    assert raised.value.fork_at is None
    assert await process.runner.list_sessions(ALICE, implicit=True, limit=9, after=None) == []


async def test_a_long_result_of_a_run_that_was_cancelled_is_fitted_too(open_process: Open, tools: Tools) -> None:
    both = asks("both", call("big__read", size=50_000), call("slow__wait", name="it"))
    process = await open_process(both, script=SMALL, servers=["big", "slow"])
    run = await process.start("both")
    await waits_for(tools)
    await until(run, ToolReturned)
    await process.cancel(run)
    assert OMITTED.search((await process.items())[2].text) is None
    assert (await process.ask("hi")).text == "hi"


async def test_a_long_result_of_a_run_that_was_superseded_is_fitted_too(open_process: Open) -> None:
    both = asks("both", call("big__read", size=50_000), call("weather", city="Oslo"))
    process = await open_process(both, script=SMALL, servers=["big"])
    await process.ask("both", tools=client_tools(servers={"big": None}))
    assert (await process.ask("hi")).text == "hi"
    first = next(one for one in await process.items() if isinstance(one, ToolResultItem))
    assert OMITTED.search(first.model_text)


@given(size=st.integers(0, 3_000), left=st.integers(-100, 3_000))
def test_what_is_shown_is_never_more_than_its_room(size: int, left: int) -> None:
    holds_to_its_room(size, left)


def test_where_room_becomes_scarce_there_is_something_worth_reading_or_nothing() -> None:
    for left in range(ANSWER_TOKENS, ANSWER_TOKENS + 200):
        holds_to_its_room(2_000, left)


def holds_to_its_room(size: int, left: int) -> None:
    whole = text(size)
    shown = fit(codec(), whole, left)
    room = (left - ANSWER_TOKENS) // 2
    if shown is None:
        assert size > room
    elif shown == whole:
        assert size <= room
    else:
        assert len(codec().tokenize(shown)) <= room
        (omitted,) = OMITTED.findall(shown)
        assert int(omitted) == size - len(OMITTED.sub("", shown))


@given(st.text(min_size=400, max_size=800))
def test_no_character_is_cut_in_two(whole: str) -> None:
    shown = fit(codec(), whole, 700)
    assert shown is not None
    if shown != whole:
        head, tail = OMITTED.split(shown)[0], OMITTED.split(shown)[-1]
        clean = whole.encode(errors="replace").decode()
        assert clean.startswith(head)
        assert clean.endswith(tail)


async def test_a_text_that_cannot_fit_is_refused_before_anybody_makes_tokens_of_it(open_process: Open) -> None:
    process = await open_process()
    codec = process.models.default.codec
    most = process.models.default.context * codec.info.longest_piece
    with pytest.raises(ContextTooLong, match="at least"):
        await process.ask("x" * (most + codec.info.longest_piece))
    with pytest.raises(ContextTooLong, match="at least"):
        check_length(codec, ["x" * most], process.models.default.context)
    check_length(codec, ["x" * (most - 1)], process.models.default.context)
    assert await process.store.session("alice", "s") is None


async def test_a_very_long_text_is_looked_at_beside_the_event_loop(
    open_process: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[bool] = []
    loop = threading.get_ident()

    def to_json(item: Item) -> str:
        here.append(threading.get_ident() == loop)
        return item_to_json(item)

    monkeypatch.setattr("tenuto.sessions.request_items.item_to_json", to_json)
    process = await open_process()
    with pytest.raises(ContextTooLong):
        await process.ask("x" * (DIGESTED.characters + 1))
    assert here == [False]


async def test_a_preview_of_a_long_session_is_made_beside_the_event_loop(
    open_process: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[bool] = []
    loop = threading.get_ident()
    joined, digested = Prompt.all_tokens, visible._digest

    def all_tokens(prompt: Prompt, ledgers: Mapping[str, Ledger]) -> Tokens:
        here.append(threading.get_ident() == loop)
        return joined(prompt, ledgers)

    process = await open_process(servers=[])
    said = [item for number in range(DIGESTED.items) for item in (UserItem(f"{number}"), AssistantItem("yes"))]
    await process.ask([*said, UserItem("hi")])
    monkeypatch.setattr(Prompt, "all_tokens", all_tokens)
    digests: list[bool] = []

    def digest(before: bytes, item: Item) -> bytes:
        digests.append(threading.get_ident() == loop)
        return digested(before, item)

    monkeypatch.setattr(visible, "_digest", digest)
    told = await process.runner.preview(turn([*said, UserItem("ho")]))
    assert codec().detokenize(told).count("yes") == DIGESTED.items
    assert here == [False]
    assert not any(digests), "what is known of the session's history is not made again"
