"""Subscriptions at a server, without a gateway before them: how many there may be, whose, and what is left of them."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tenuto.errors import NotFound, Overloaded, ServerUnreachable, ToolFailed
from tenuto.tools.host import Host
from tenuto.tools.host.subscriptions import MOST, MOST_AT_SERVER, Subscriptions
from tenuto.tools.mcp_config import ServerConfig, StdioTarget
from tenuto.tools.mcp_entry import Era
from tests.patience import HANGS_S
from tests.tools.servers import changing

pytestmark = pytest.mark.slow
ERAS: tuple[Era, ...] = ("legacy", "modern")


@asynccontextmanager
async def at(era: Era, *arguments: str, timeout_s: float = HANGS_S) -> AsyncIterator[Subscriptions]:
    target = StdioTarget(sys.executable, (str(Path(changing.__file__)), *arguments))
    async with Host([ServerConfig("it", target, timeout_s=timeout_s, start_timeout_s=HANGS_S, era=era)]) as host:
        assert await host.settled(HANGS_S)
        yield host.servers[0].offered.subscriptions


def nothing(*_: str) -> None:
    """Whoever it is does not listen."""


async def took(subscriptions: Subscriptions, principal: str, lost: Callable[[], None] = nothing) -> int:
    """Take places until there is none; how many."""
    for number in range(MOST + 1):
        try:
            await subscriptions.watch(principal, f"memo://{principal}-{number}", nothing, lost)
        except Overloaded:
            return number
    raise AssertionError("there is no end of places")


@pytest.mark.parametrize("era", ERAS)
async def test_who_has_most_gives_way_to_others_up_to_an_equal_share(era: Era) -> None:
    lost: list[str] = []
    async with at(era) as subscriptions:
        assert await took(subscriptions, "greedy", lambda: lost.append("greedy")) == MOST
        assert lost == []
        assert await took(subscriptions, "other", lambda: lost.append("other")) == MOST // 2
    assert lost == ["greedy"] * (MOST // 2)


@pytest.mark.parametrize("era", ERAS)
async def test_one_that_is_cancelled_while_it_waits_leaves_nothing_behind(era: Era) -> None:
    async with at(era, "mute") as subscriptions:
        for number in range(MOST_AT_SERVER + 1):
            async with anyio.create_task_group() as group:
                group.start_soon(subscriptions.watch, "ann", f"memo://{number}", nothing, nothing)
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        with anyio.fail_after(HANGS_S):
            (await subscriptions.watch("ann", "memo://heard", nothing, nothing))()


@pytest.mark.parametrize("era", ERAS)
async def test_one_that_is_refused_can_be_wanted_again_and_is_refused_again(era: Era) -> None:
    async with at(era) as subscriptions:
        for _ in range(3):
            with pytest.raises(NotFound, match="there is no resource 'memo://none'"):
                await subscriptions.watch("ann", "memo://none", nothing, nothing)
        for _ in range(3):  # it is wanted again while it is being ended at the server
            (await subscriptions.watch("ann", "memo://a", nothing, nothing))()


@pytest.mark.parametrize("era", ERAS)
async def test_several_that_wait_for_one_answer_are_all_told_that_there_is_none(era: Era) -> None:
    told: list[str] = []

    async def fail() -> None:
        with pytest.raises(ToolFailed, match=r"it did not answer within 0\.2 s"):
            await subscriptions.watch("ann", "memo://a", nothing, nothing)
        told.append("no answer")

    async with at(era, "mute", timeout_s=0.2) as subscriptions, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(fail)
    assert told == ["no answer"] * 3


async def test_a_server_that_is_not_there_cannot_be_subscribed_at() -> None:
    async with Host([ServerConfig("it", StdioTarget("no-such-command"))]) as host:
        assert await host.settled(HANGS_S)
    with pytest.raises(ServerUnreachable, match="it is not connected"):
        await host.servers[0].offered.subscriptions.watch("ann", "memo://a", nothing, nothing)
