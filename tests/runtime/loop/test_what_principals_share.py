"""What one principal's caches tell another: nothing, and where a setting lends a prefix, still not in the usage."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tenuto.pipelines.backend import Row, Sampling
from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.loop.raw import RawRequest
from tenuto.runtime.loop.requests import ToolSelection
from tenuto.sessions.items import Item, SystemItem, UserItem
from tenuto.sessions.principal import Principal
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import Process, client_tools

SECRET = "You are the assistant of Alice, and the word is swordfish."
OTHER = "You are the assistant of Alice, and the word is something."
ITEMS = (SystemItem(SECRET), UserItem("hi"))
BLOCKS: dict[str, tuple[Sequence[Item], dict[str, Any]]] = {
    "system": (ITEMS, {"tools": ToolSelection(given=True)}),
    "system and tools": (ITEMS, {"tools": client_tools()}),
    "tools": ((UserItem("hi"),), {"tools": client_tools()}),
}


async def cost(process: Process, id: str, said: Sequence[Item], principal: str, **fields: Any) -> RoundUsage:
    done = await process.ask(said, id, principal=principal, **fields)
    return done.usage.rounds[0]


@contextmanager
def fed(process: Process) -> Iterator[list[int]]:
    """How many tokens each step has read meanwhile, as the backend sees it."""
    backend, steps = process.backends["scripted"], list[int]()
    launch = backend.launch

    def watched(rows: Sequence[Row]) -> Any:
        steps.append(sum(len(row.tokens) for row in rows))
        return launch(rows)

    backend.launch = watched  # type: ignore[method-assign]  # the real step goes on behind it
    yield steps
    backend.launch = launch  # type: ignore[method-assign]


@pytest.mark.parametrize("block", BLOCKS)
async def test_bob_cannot_read_alices_prompt_from_what_was_cached(open_process: Open, block: str) -> None:
    process = await open_process()
    said, fields = BLOCKS[block]
    hers = await cost(process, "a", said, "alice", **fields)
    with fed(process) as steps:
        his = await cost(process, "b", said, "bob", **fields)
    assert (his.cached, his.computed) == (hers.cached, hers.computed) == (0, his.prompt)
    assert steps[0] == his.prompt, "and the time does not tell it either"
    again = await cost(process, "more", said, "alice", **fields)
    assert again.cached > 0, "her own sequences share"


async def test_bob_cannot_read_alices_text_by_raw_completions(open_process: Open) -> None:
    process = await open_process()
    await cost(process, "a", ITEMS, "alice", tools=ToolSelection(given=True))
    (ledger,) = (await process.session("a")).ledgers.values()
    request = RawRequest(Principal("bob"), None, tuple(ledger.tokens), Sampling(), 1)
    run = process.runner.complete(request)
    async for _ in run:
        pass
    assert run.usage.cached == 0


@pytest.mark.parametrize("block", BLOCKS)
async def test_a_prefix_that_a_setting_lends_is_not_computed_again_and_not_told(open_process: Open, block: str) -> None:
    process = await open_process(sharing="system")
    said, fields = BLOCKS[block]
    hers = await cost(process, "a", said, "alice", **fields)
    with fed(process) as steps:
        his = await cost(process, "b", said, "bob", **fields)
    assert (his.cached, his.computed, his.residency) == (0, his.prompt, hers.residency)
    assert his.miss_reason is None
    assert steps[0] < his.prompt - 16
    if block != "tools":
        assert steps[0] < his.prompt - len(SECRET)


@pytest.mark.parametrize("said", ["hi", "What is the word?"])
async def test_nothing_that_alice_says_is_lent(open_process: Open, said: str) -> None:
    process = await open_process(sharing="system")
    tools = ToolSelection(given=True)
    long = "My password is hunter2, and do not tell anybody of it, ever."
    await cost(process, "a", [SystemItem(SECRET), UserItem(long)], "alice", tools=tools)
    with fed(process) as steps:
        his = await cost(process, "b", [SystemItem(SECRET), UserItem(long + said)], "bob", tools=tools)
    (ledger,) = (await process.session("b", "bob")).ledgers.values()
    assert steps[0] == his.prompt - ledger.offsets[1]


async def test_a_part_of_a_system_prompt_is_not_lent(open_process: Open) -> None:
    """Else Bob would find it out by time, one token after the other, and not only whether he has guessed all of it."""
    process = await open_process(sharing="system")
    tools = ToolSelection(given=True)
    await cost(process, "a", ITEMS, "alice", tools=tools)
    for id, guess in zip("bcd", (OTHER, SECRET[:-1], SECRET + "!"), strict=True):
        with fed(process) as steps:
            his = await cost(process, id, [SystemItem(guess), UserItem("hi")], "bob", tools=tools)
        assert steps[0] == his.prompt - his.cached, "nothing but what his own guesses have in common"


async def test_a_lent_prefix_is_told_once_it_is_ones_own(open_process: Open) -> None:
    process = await open_process(sharing="system")
    said, fields = BLOCKS["system"]
    await cost(process, "a", said, "alice", **fields)
    first = await cost(process, "b", said, "bob", **fields)
    second = await cost(process, "b", [UserItem("and?")], "bob", **fields)
    assert second.cached >= first.prompt - 1
