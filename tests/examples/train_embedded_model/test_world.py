"""The world that conversations are generated from: what is held out stays held out, and every conversation is sound."""

import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("faker")
from train_embedded_model.builtins import SPECS, SUMS
from train_embedded_model.conversations import Conversation, assignments, conversation, errands
from train_embedded_model.drills import choosing, practising
from train_embedded_model.kinds import WORLD, Kind, all_kinds, kinds, make_tool, request
from train_embedded_model.phrases import phrases, table
from train_embedded_model.pools import POOLS, Pools
from train_embedded_model.rewording import reworded
from train_embedded_model.roles import invented

EXAMPLES = Path(__file__).parents[3] / "examples"
MAKERS = (conversation, partial(conversation, test=True), errands, assignments, choosing, practising)
SEEDS = st.integers(0, 2**32)


def test_no_kind_of_tool_is_both_trained_on_and_evaluated() -> None:
    trained, evaluated = kinds(test=False), kinds(test=True)
    assert len(evaluated) >= 20
    assert {kind.id for kind in trained} & {kind.id for kind in evaluated} == set()
    rivals = [kind for test in (False, True) for kind in kinds(test=test, like_builtins=True)]
    assert len(trained) + len(evaluated) + len(rivals) == len(all_kinds())


def test_no_result_of_a_tool_is_an_error_for_those_are_answered_otherwise() -> None:
    assert [text for kind in all_kinds() for text in kind.results if text.lower().startswith("error")] == []


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_tool_that_rivals_the_built_in_ones_is_never_beside_them(seed: int) -> None:
    rivals = {text for kind in kinds(test=False, like_builtins=True) for text in kind.descriptions}
    listed = {tool["function"]["description"] for tool in conversation(random.Random(seed)).tools}
    own = {tool["function"]["description"] for tool in SPECS.values()}
    assert not (listed & rivals and listed & own)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_boxed_conversation_has_every_tool_of_the_box(seed: int) -> None:
    for talk in (conversation(random.Random(seed), boxed=True), errands(random.Random(seed), boxed=True)):
        assert {tool["function"]["name"] for tool in talk.tools} >= set(SPECS)


def test_every_kind_of_sum_has_phrases_that_name_its_numbers_and_nothing_else() -> None:
    lists = table("builtin")["calculator"]
    assert set(lists) == {*SUMS, "expression"}
    for name, expression in SUMS.items():
        for phrase in lists[name]:
            assert sorted(re.findall(r"{(\w+)}", phrase)) == sorted(set(re.findall(r"{(\w+)}", expression))), phrase


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_small_words_about_a_request_change_no_value_in_it(seed: int) -> None:
    talk = errands(random.Random(seed))
    asked = [message.text for message in talk.messages if message.role == "user"]
    calls = [message.calls for message in talk.messages if message.role == "assistant"]
    for text, made in zip(asked, calls, strict=True):
        for name, arguments in made:
            if name == "notes__put":
                assert arguments["text"] in text
                assert arguments["key"] in text


def test_phrases_that_are_evaluated_are_not_trained_on() -> None:
    for name in ("now", "convert", "here"):
        trained, evaluated = (set(phrases("builtin", "clock", name, test=test)) for test in (False, True))
        assert trained
        assert evaluated
        assert trained & evaluated == set()


def test_every_pool_that_a_kind_or_fact_names_is_there() -> None:
    named = {param.pool for kind in all_kinds() for param in kind.params} | {
        fact["value"] for fact in table("talk")["fact"]
    }
    assert named <= POOLS | {"enum", "bool"}


def test_no_word_is_used_for_two_others_that_mean_different_things() -> None:
    groups = tomllib.loads((WORLD / "synonyms.toml").read_text())["groups"]
    words = [word for group in groups for word in group]
    assert all(len(group) >= 2 for group in groups)
    assert len(words) == len(set(words))


@pytest.mark.parametrize("pool", ["word", "first_name", "sentence", "company"])
def test_values_of_lists_that_are_evaluated_are_not_trained_on(pool: str) -> None:
    drawn = [{Pools(random.Random(seed), test=test).text(pool) for seed in range(400)} for test in (False, True)]
    assert drawn[0] & drawn[1] == set()


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_an_exchanged_word_is_new_to_the_listing_and_to_the_requests_alike(seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(kinds(test=False))
    other = reworded(Pools(rng, test=False), kind)
    assert [re.findall(r"{\w+}", ask.text) for ask in other.asks] == [re.findall(r"{\w+}", a.text) for a in kind.asks]
    assert [param.key for param in other.params] == [param.key for param in kind.params]
    listed, asked = (words(other)[side] - words(kind)[side] for side in (0, 1))
    assert {word[:3] for word in listed} == {word[:3] for word in asked}


def words(kind: Kind) -> tuple[set[str], set[str]]:
    """Those of the listing, and those of the requests."""
    texts = [*kind.names, *kind.descriptions]
    for param in kind.params:
        texts += [*param.names, *param.descriptions]
    listed, asked = " ".join(texts), re.sub(r"{\w+}", " ", " ".join(ask.text for ask in kind.asks))
    return set(re.findall("[a-z]{3,}", listed.lower())), set(re.findall("[a-z]{3,}", asked.lower()))


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from(MAKERS))
def test_every_call_is_one_of_a_listed_tool_and_valid_by_its_schema(
    seed: int, make: Callable[[random.Random], Conversation]
) -> None:
    talk = make(random.Random(seed))
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in talk.tools}
    assert len(schemas) == len(talk.tools)
    for message in talk.messages:
        for name, arguments in message.calls:
            jsonschema.validate(arguments, schemas[name])


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_every_call_has_its_result_before_the_model_speaks_again(seed: int) -> None:
    open_calls = 0
    for message in conversation(random.Random(seed)).messages:
        if message.role == "tool":
            open_calls -= 1
        else:
            assert open_calls == 0
            open_calls = len(message.calls)
    assert open_calls == 0


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_what_an_argument_says_stands_in_the_conversation_before_it(seed: int) -> None:
    talk = conversation(random.Random(seed))
    for place, message in enumerate(talk.messages):
        for name, arguments in message.calls:
            if name == "notes__put":
                assert arguments["text"].lower() in _said(talk, place)


def _said(talk: Conversation, place: int) -> str:
    return "\n".join(message.text for message in talk.messages[:place]).lower()


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_practice_asks_one_built_in_server_and_nothing_else(seed: int) -> None:
    talk = practising(random.Random(seed))
    (server,) = {tool["function"]["name"].split("__")[0] for tool in talk.tools}
    answers = [message for message in talk.messages if message.role == "assistant"]
    assert len(answers) >= 6
    assert all(len(message.calls) == 1 and message.calls[0][0].startswith(f"{server}__") for message in answers)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_a_request_to_an_invented_tool_tells_all_that_is_required_and_nothing_that_the_call_lacks(seed: int) -> None:
    pools = Pools(random.Random(seed), test=False)
    kind = invented(pools)
    required = {param.key for param in kind.params if param.required}
    for ask in kind.asks:
        told = re.findall(r"{(\w+)}", ask.text)
        assert len(told) == len(set(told))
        assert required <= {*told, *ask.given} <= {param.key for param in kind.params}
    asked = request(pools, make_tool(pools, kind, "", []))
    texts = {param.key for param in kind.params if param.type == "string" and param.pool != "enum"}
    assert all(value in asked.text for key, value in asked.values.items() if key in texts)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_no_two_parameters_of_an_invented_tool_could_be_taken_for_each_other(seed: int) -> None:
    params = invented(Pools(random.Random(seed), test=False)).params
    for place, param in enumerate(params):
        pair = param.key.removesuffix("_first").removesuffix("_second")
        for other in params[place + 1 :]:
            assert not set(param.names) & set(other.names) or other.key.startswith(pair)


def test_every_way_to_tell_a_role_has_a_place_for_each_of_its_values_and_is_there_once() -> None:
    for path in WORLD.glob("roles_*.toml"):
        found = tomllib.loads(path.read_text())
        for role in [*found.get("role", ()), *found.get("pair", ())]:
            places = ["x"] if "names" in role else ["x", "y"]
            assert [mark for mark in role["marks"] if sorted(re.findall(r"{(\w)}", mark)) != places] == []
            assert len(set(role["marks"])) == len(role["marks"])
            assert set(role["pools"]) <= POOLS


def test_a_seed_makes_one_conversation_whatever_was_made_before_it() -> None:
    made = {seed: conversation(random.Random(seed)) for seed in range(12)}
    script = """
import random
from train_embedded_model.conversations import conversation
print([conversation(random.Random(seed)) for seed in range(11, -1, -1)])
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    assert run.stdout == f"{[made[seed] for seed in range(11, -1, -1)]}\n"
