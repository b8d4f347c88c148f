"""What a round says, how it stops and what it costs."""

import pytest

from tenuto.pipelines.base import GrammarSource
from tenuto.runtime.engine.messages import Residency, StopCause
from tests.runtime.engine.rig import Make, round_of

TEXTS = [f"{number}: " + "déjà vu, " * number for number in range(10)]


async def test_a_round_tells_its_tokens_and_ends_with_the_end_of_the_turn(make: Make) -> None:
    rig = make()
    round = rig.begin("s", rig.prompt("Hello!"))
    stopped = await round.stopped()
    assert round.tokens == rig.answer("Hello!")
    assert (stopped.sequence, stopped.cause) == ("s", StopCause.END)
    usage = stopped.usage
    prompt = len(rig.prompt("Hello!"))
    assert (usage.prompt, usage.computed, usage.cached, usage.new) == (prompt, prompt, 0, prompt)
    assert (usage.sampled, usage.residency, usage.miss_reason) == (len(round.tokens), Residency.NONE, None)
    assert usage.first_token_s is not None
    assert 0 <= usage.waited_s <= usage.first_token_s <= usage.total_s


@pytest.mark.parametrize("batch_tokens", [4, 7, 512])
async def test_what_a_sequence_says_does_not_depend_on_its_company(make: Make, batch_tokens: int) -> None:
    rig = make(slots=4, batch_tokens=batch_tokens, prefill_chunk=5)
    rounds = [rig.begin(text, rig.prompt(text)) for text in TEXTS]
    for text, round in zip(TEXTS, rounds, strict=True):
        assert (await round.stopped()).cause is StopCause.END
        assert round.tokens == rig.answer(text)
    assert max(sum(len(row.tokens) for row in step) for step in rig.backend.steps) <= batch_tokens


async def test_a_resume_computes_only_what_is_new(make: Make) -> None:
    rig = make()
    prompt = rig.prompt("Count! " * 20)
    round = rig.begin("s", prompt, max_tokens=5)
    length = len(prompt) + 5
    for number in range(20):
        await round.stopped()
        assert rig.engine.holds("s", length)
        new = rig.result(f"result {number}")
        round = rig.resume("s", length, new)
        usage = (await round.stopped()).usage
        assert round.tokens == rig.answer(f"result {number}")
        # One more than the result: the last sampled token has not been fed.
        assert usage.computed == usage.new == len(new) + 1
        assert (usage.prompt, usage.cached) == (length + len(new), length - 1)
        assert (usage.residency, usage.miss_reason) == (Residency.DEVICE, None)
        length += len(new) + len(round.tokens)


async def test_a_submit_of_more_of_the_same_computes_only_what_is_new(make: Make) -> None:
    rig = make()
    tokens, new = rig.prompt("Count! " * 20), list[int]()
    for number in range(5):
        round = rig.begin("s", tokens)
        usage = (await round.stopped()).usage
        if number:
            assert usage.computed == usage.new == len(new) + 1
            assert round.tokens == rig.answer(f"result {number}")
        new = rig.result(f"result {number + 1}")
        tokens = [*tokens, *round.tokens, *new]


async def test_a_submit_that_goes_another_way_is_cut_where_they_part(make: Make) -> None:
    rig = make()
    first, second = rig.prompt("The weather in Paris?"), rig.prompt("The weather in Peru?")
    await rig.begin("s", first).stopped()
    round = rig.begin("s", second)
    usage = (await round.stopped()).usage
    shared = next(at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    assert round.tokens == rig.answer("The weather in Peru?")
    assert (usage.cached, usage.computed, usage.new) == (shared, len(second) - shared, len(second) - shared)
    assert usage.miss_reason is None


async def test_the_same_tokens_again_cost_one(make: Make) -> None:
    rig = make()
    prompt = rig.prompt("Again!")
    for _ in range(2):
        round = rig.begin("s", prompt)
        usage = (await round.stopped()).usage
        assert round.tokens == rig.answer("Again!")
    assert (usage.computed, usage.new, usage.miss_reason) == (1, 0, None)


async def test_a_cache_that_cannot_be_cut_is_computed_again(make: Make) -> None:
    rig = make(can_truncate=False)
    await rig.begin("s", rig.prompt("The weather in Paris?")).stopped()
    second = rig.prompt("The weather in Peru?")
    round = rig.begin("s", second)
    usage = (await round.stopped()).usage
    assert round.tokens == rig.answer("The weather in Peru?")
    assert (usage.cached, usage.computed) == (0, len(second))
    assert usage.new < usage.computed
    assert usage.miss_reason == "diverged"


async def test_a_cache_that_cannot_be_cut_still_serves_a_resume(make: Make) -> None:
    rig = make(can_truncate=False)
    prompt = rig.prompt("Hello!")
    round = rig.begin("s", prompt)
    await round.stopped()
    new = rig.result("done")
    usage = (await rig.resume("s", len(prompt) + len(round.tokens), new).stopped()).usage
    assert usage.computed == usage.new == len(new) + 1


async def test_what_an_earlier_process_computed_is_not_new(make: Make) -> None:
    rig = make()
    prompt = rig.prompt("Hello again!")
    stream = rig.engine.submit("s", prompt, round_of(), computed_before=len(prompt) - 4, principal="alice")
    usage = (await rig.read(stream).stopped()).usage
    assert (usage.new, usage.computed, usage.miss_reason) == (4, len(prompt), "not_resident")


@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("one two three", "two", "one two"),
        ("crème brûlée", "è", "crè"),
        ("a\nb\nc", "\nb\n", "a\nb\n"),
        ("ends here", "here", "ends here"),
    ],
)
async def test_a_stop_string_stops_although_it_lies_across_tokens(make: Make, text: str, stop: str, shown: str) -> None:
    rig = make()
    round = rig.begin("s", rig.prompt(text), stop=["not this", stop])
    stopped = await round.stopped()
    assert (stopped.cause, stopped.stop_string) == (StopCause.STOP_STRING, stop)
    assert round.tokens == rig.codec.tokenize(shown)
    assert stopped.usage.sampled == len(round.tokens)


async def test_a_stop_string_that_was_begun_in_the_round_before_does_not_stop(make: Make) -> None:
    rig = make()
    prompt = rig.prompt("one two three")
    first = rig.begin("s", prompt, max_tokens=5, stop=["two"])
    assert (await first.stopped()).cause is StopCause.LIMIT
    second = rig.resume("s", len(prompt) + 5, [], stop=["two"])
    assert (await second.stopped()).cause is StopCause.END
    assert first.tokens + second.tokens == rig.answer("one two three")


@pytest.mark.parametrize("limit", [1, 4])
async def test_a_round_has_no_more_tokens_than_its_limit(make: Make, limit: int) -> None:
    rig = make()
    round = rig.begin("s", rig.prompt("one two three"), max_tokens=limit)
    stopped = await round.stopped()
    assert (stopped.cause, stopped.stop_string, stopped.usage.sampled) == (StopCause.LIMIT, None, limit)
    assert round.tokens == rig.answer("one two three")[:limit]


@pytest.mark.parametrize("left", [0, 1, 3])
async def test_a_round_stops_where_the_context_is_full(make: Make, left: int) -> None:
    text = "one two three"
    rig = make(cells=len(make().prompt(text)) + left)
    round = rig.begin("s", rig.prompt(text))
    stopped = await round.stopped()
    assert stopped.cause is StopCause.LIMIT
    assert round.tokens == rig.answer(text)[: max(left, 1)]


async def test_a_grammar_holds_the_tokens_and_a_ban_forbids_them(make: Make) -> None:
    rig = make([{"text": "abcabc"}])
    held = rig.begin("held", rig.prompt("?"), grammar=GrammarSource(lark='start: "abX"'))
    banned = rig.begin("banned", rig.prompt("?"), grammar=GrammarSource(banned=frozenset(b"b")))
    free = rig.begin("free", rig.prompt("?"))
    for round in (held, banned, free):
        assert (await round.stopped()).cause is StopCause.END
    assert held.tokens == rig.answer("abX")
    assert ord("b") not in banned.tokens
    assert free.tokens == rig.answer("abcabc")


async def test_a_fresh_prefix_of_another_sequence_is_not_computed_again(make: Make) -> None:
    rig = make(batch_tokens=64)
    system = "You are terse. " * 10
    rig.backend.shut()
    first = rig.begin("first", rig.prompt(system + "One?"))
    await rig.backend.let(6)  # it decodes
    second = rig.begin("second", rig.prompt(system + "Two?"))
    rig.backend.open()
    usage = (await second.stopped()).usage
    await first.stopped()
    assert (first.tokens, second.tokens) == (rig.answer(system + "One?"), rig.answer(system + "Two?"))
    assert usage.cached >= len(system)
    assert usage.computed == usage.prompt - usage.cached
    assert (usage.residency, usage.miss_reason) == (Residency.NONE, None)


async def test_a_sequence_that_was_forgotten_is_asked_for_whole_and_computed_again(make: Make) -> None:
    """Whoever goes on names what is known; the engine may have lost it meanwhile, in a failed step for one."""
    rig = make()
    prompt = rig.prompt("Hello!")
    first = rig.begin("s", prompt)
    await first.stopped()
    again = rig.resume("s", len(prompt) + len(first.tokens), rig.result("done"))
    rig.engine.release("t")
    await again.stopped()
    assert again.tokens == rig.answer("done")
    rig.engine.release("s")
    last = rig.resume("s", len(again.seen), rig.result("done"))
    usage = (await last.stopped()).usage
    assert last.tokens == rig.answer("done")
    assert usage.computed == usage.prompt == len(last.seen) - len(last.tokens)


async def test_tokens_that_are_not_those_that_are_named_are_asked_for_whole(make: Make) -> None:
    rig = make()
    prompt = rig.prompt("Hello!")
    first = rig.begin("s", prompt)
    await first.stopped()
    rig.seen["s"][-2] ^= 1  # as of another ledger of the session, just as long
    seen = list(rig.seen["s"])
    again = rig.resume("s", len(seen), rig.result("done"))
    usage = (await again.stopped()).usage
    assert again.tokens == rig.answer("done")
    assert usage.prompt == len(seen) + len(rig.result("done"))
    assert usage.cached == len(seen) - 2, "what both have in common"


async def test_a_round_that_is_cancelled_before_it_is_asked_for_whole_never_begins(make: Make) -> None:
    rig = make()
    first = rig.begin("s", rig.prompt("Hello!"))
    await first.stopped()
    rig.seen["s"][0] ^= 1
    again = rig.resume("s", len(rig.seen["s"]), rig.result("done"))
    rig.cancel("s")
    stopped = await again.stopped()
    assert (stopped.cause, stopped.usage.sampled, again.tokens) == (StopCause.CANCELLED, 0, [])
    await rig.begin("s", rig.prompt("Hello!")).stopped()
