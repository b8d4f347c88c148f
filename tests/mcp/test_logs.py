"""Log messages of runs: by the level of a connection or a request, at a bounded rate, in both eras and transports."""

from typing import Any

import mcp.types as t
import pytest
from mcp import Client
from mcp.types import LOG_LEVEL_META_KEY

from tenuto.runtime.mcp.logs import BURST, PER_S, RunLog, at_least
from tenuto.runtime.schema.events import CallAnswer, ToolCalling
from tests.e2e.server import Server
from tests.mcp.test_handles import connected, owner, way

__all__ = ["owner", "way"]  # fixtures
pytestmark = [pytest.mark.filterwarnings("ignore:.*logging")]


class Heard:
    """What a client was told, by level."""

    def __init__(self) -> None:
        self.messages: list[t.LoggingMessageNotificationParams] = []

    async def hear(self, params: t.LoggingMessageNotificationParams) -> None:
        """The client's callback."""
        self.messages.append(params)

    @property
    def events(self) -> list[str]:
        """What the messages are of."""
        return [message.data["event"] for message in self.messages]


async def ask(client: Client, mode: str, level: t.LoggingLevel | None, message: str = "time") -> None:
    meta: Any = None
    if level is not None and mode == "legacy":
        await client.set_logging_level(level)
    elif level is not None:
        meta = {LOG_LEVEL_META_KEY: level}
    await client.call_tool("chat", {"message": message}, meta=meta)


@pytest.mark.slow
async def test_a_run_tells_what_it_does_at_the_level_that_is_wanted(way: tuple[str, str], owner: Server) -> None:
    heard = Heard()
    transport, mode = way
    async with connected(owner, transport, mode, logging_callback=heard.hear) as client:
        await ask(client, mode, None)
        assert heard.events == []
        await ask(client, mode, "error")
        assert heard.events == []
        await ask(client, mode, "info")
        assert heard.events == ["run_started", "tool_calling", "tool_returned", "run_done"]
        await ask(client, mode, "debug", "hello")
    assert heard.events[4:] == ["run_started", "round_ended", "run_done"]
    called = heard.messages[1]
    assert (called.level, called.logger, called.data["name"]) == ("info", "tenuto.run", "calculator__evaluate")
    assert "6*7" not in str(heard.messages)


@pytest.mark.slow
async def test_a_run_that_fails_is_an_error(way: tuple[str, str], owner: Server) -> None:
    heard = Heard()
    transport, mode = way
    async with connected(owner, transport, mode, logging_callback=heard.hear) as client:
        await ask(client, mode, "warning", "please break")
    assert [(each.level, each.data["event"]) for each in heard.messages] == [("error", "run_done")]
    assert "Traceback" not in str(heard.messages)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_level_of_one_request_holds_for_no_other(transport: str, owner: Server) -> None:
    heard = Heard()
    async with connected(owner, transport, "auto", logging_callback=heard.hear) as client:
        await ask(client, "auto", "info", "hello")
        await ask(client, "auto", None, "hello")
    assert heard.events == ["run_started", "run_done"]


async def test_messages_come_at_a_bounded_rate_and_count_what_was_left_out() -> None:
    now = 0.0
    sent: list[dict[str, Any]] = []

    async def send(_level: t.LoggingLevel, data: dict[str, Any]) -> None:
        sent.append(data)

    log = RunLog(send, at_least("info"), clock=lambda: now)
    call = CallAnswer(id="c", name="n", arguments="{}", server=True)
    for number in range(1, 1001):
        await log.see(ToolCalling(number=number, round=1, call=call))
    assert len(sent) == BURST
    now = 1 / PER_S
    await log.see(ToolCalling(number=1001, round=1, call=call))
    assert sent[-1]["left_out"] == 1000 - BURST
    now = 1e9
    for number in range(2000, 3000):
        await log.see(ToolCalling(number=number, round=1, call=call))
    assert len(sent) == 2 * BURST + 1
