"""The host with real servers in processes of their own: calls, deadlines, crashes, isolation, and how it all ends."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import pytest_asyncio

from tenuto.errors import ServerUnreachable, ToolFailed
from tenuto.sessions.questions import Question
from tenuto.tools.asking import Action, Reply
from tenuto.tools.host import Failure, Host, McpServer, Status
from tenuto.tools.mcp_config import ServerConfig, StdioTarget
from tenuto.tools.registry import Registry
from tenuto.tools.spec import CallContext, ToolResult
from tests.patience import HANGS_S

pytestmark = [pytest.mark.asyncio(loop_scope="module")]
SERVERS = Path(__file__).parent.parent / "servers"
CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")


def config(name: str, script: str, *args: str, timeout_s: float = 20, start_timeout_s: float = 20) -> ServerConfig:
    target = StdioTarget(sys.executable, (str(SERVERS / script), *args))
    return ServerConfig(name, target, timeout_s=timeout_s, start_timeout_s=start_timeout_s)


class Watch:
    """Waits for conditions that change only when it is told of something."""

    def __init__(self) -> None:
        self._told = anyio.Event()

    def tell(self) -> None:
        told, self._told = self._told, anyio.Event()
        told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(HANGS_S):
            while not condition():
                await self._told.wait()


WATCH = Watch()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    """One host for all tests that do no lasting harm, in a task of its own, because it holds cancel scopes."""
    configs = [
        config("many", "many.py"),
        *(config(odd, "raw.py", odd) for odd in ("strict", "rubbish", "malformed")),
        config("mute", "raw.py", "mute", start_timeout_s=0.3),
        ServerConfig("missing", StdioTarget("no-such-command")),
        ServerConfig("off", StdioTarget("no-such-command"), disabled=True),
    ]
    entered, stop = asyncio.Event(), asyncio.Event()
    host = Host(configs, on_change=WATCH.tell)

    async def own() -> None:
        async with host:
            assert await host.settled(20)
            entered.set()
            await stop.wait()

    owner = asyncio.create_task(own())
    await asyncio.wait_for(entered.wait(), 25)
    yield host
    stop.set()
    await asyncio.wait_for(owner, 20)


def content(*texts: str) -> str:
    """A result of text parts, as JSON; the texts are JSON's already."""
    return '{"content": [' + ",".join(f'{{"type": "text", "text": "{text}"}}' for text in texts) + "]}"


def unread(why: str) -> ToolResult:
    return ToolResult(f"Error: the answer cannot be read: {why}", is_error=True)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def server_of(host: Host, name: str) -> McpServer:
    return next(server for server in host.servers if server.name == name)


async def test_the_tools_of_all_pages_are_listed_with_their_hints(host: Host) -> None:
    tools = {tool.spec.name: tool for tool in await server_of(host, "many").list()}
    assert {"echo", "declared", "lying", "slow", "large"} <= tools.keys()
    assert tools["echo"].annotations.read_only
    assert tools["echo"].spec.description == "Say it again"
    assert tools["declared"].output_schema is not None


async def test_a_call_has_its_result(host: Host) -> None:
    many = server_of(host, "many")
    assert await many.call("echo", {"text": "grüß dich"}, CONTEXT) == ToolResult("grüß dich")
    assert await many.call("declared", {}, CONTEXT) == ToolResult('{"n": 3}', structured={"n": 3})
    assert await many.call("fails", {}, CONTEXT) == ToolResult("Error: no luck", is_error=True)
    mixed = await many.call("mixed", {}, CONTEXT)
    assert mixed.text == "a\n[image: image/png, 3 bytes]\n[resource: file:///a]\ninside"


async def test_an_answer_that_breaks_its_declaration_is_an_error_that_says_so(host: Host) -> None:
    result = await server_of(host, "many").call("lying", {}, CONTEXT)
    assert result.is_error
    assert result.text.startswith("Error: lying ran, but its result does not match its output schema: ")
    assert "'three' is not of type 'integer'" in result.text


async def test_an_error_of_the_protocol_is_a_result_that_the_model_reads(host: Host) -> None:
    result = await server_of(host, "many").call("no_such_tool", {}, CONTEXT)
    assert result.is_error
    assert result.text.startswith("Error: ")


async def test_progress_reaches_the_caller(host: Host) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))
        WATCH.tell()

    context = CallContext(principal="ann", session=None, run=None, call="call_2", progress=progress)
    assert (await server_of(host, "many").call("progress", {}, context)).text == "finished"
    await WATCH.until(lambda: len(told) == 2)
    assert told == [(1, 2, "half"), (2, 2, "done")]


async def test_what_a_server_asks_of_a_person_is_answered_within_the_call(host: Host) -> None:
    async def ask(question: Question) -> Reply:
        return Reply(Action.ACCEPT, {"name": f"{question.server}: {question.message}"})

    answered = await server_of(host, "many").call("ask", {}, replace(CONTEXT, ask=ask))
    assert answered == ToolResult("accept many: Your name?")


async def test_calls_run_at_the_same_time_over_one_connection(host: Host) -> None:
    many = server_of(host, "many")
    texts: list[str] = []

    async def call(number: int) -> None:
        texts.append((await many.call("echo", {"text": str(number)}, CONTEXT)).text)
        WATCH.tell()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(many.call, "slow", {}, CONTEXT)
        for number in range(20):
            tasks.start_soon(call, number)
        await WATCH.until(lambda: len(texts) == 20)
        tasks.cancel_scope.cancel()
    assert sorted(texts, key=int) == [str(number) for number in range(20)]


async def test_cancelling_a_call_cancels_it_at_the_server(host: Host) -> None:
    many = server_of(host, "many")
    with anyio.fail_after(HANGS_S), anyio.CancelScope() as scope:

        async def progress(done: float, total: float | None, message: str | None) -> None:
            scope.cancel()

        await many.call("slow", {}, CallContext("ann", None, None, "call_3", progress))
    assert (await many.call("was_cancelled", {}, CONTEXT)).text == "True"


async def test_a_server_that_announces_a_new_tool_is_listed_again(host: Host) -> None:
    many = server_of(host, "many")
    await many.call("grow", {}, CONTEXT)
    await WATCH.until(lambda: many.state.tools == 13)
    assert (await many.list())[-1].spec.name == "new"


async def test_a_server_that_knows_only_the_older_protocol_and_exits_is_started_by_it(host: Host) -> None:
    strict = server_of(host, "strict")
    assert (strict.state.status, strict.state.protocol, strict.state.restarts) == (Status.READY, "2025-06-18", 0)
    assert await strict.call("good", {}, CONTEXT) == ToolResult("well")
    assert "initialize comes first" in strict.stderr


async def test_rubbish_on_both_outputs_does_no_harm_and_its_end_can_be_read(host: Host) -> None:
    rubbish = server_of(host, "rubbish")
    assert await rubbish.call("good", {}, CONTEXT) == ToolResult("well")
    assert len(rubbish.stderr) == 200
    with anyio.fail_after(HANGS_S):
        while rubbish.stderr[-1] != "complaint, the last":  # noqa: ASYNC110 -- no event tells of a line
            await anyio.sleep(0.01)


async def test_malformed_tools_do_not_take_the_others_down(host: Host) -> None:
    malformed = server_of(host, "malformed")
    assert [tool.spec.name for tool in await malformed.list()] == ["good", "untyped", "bad_extras"]
    assert await malformed.call("good", {}, CONTEXT) == ToolResult("well")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("mute", "not ready within 0.3 s"), ("missing", "'no-such-command' was not found on PATH")],
)
async def test_a_server_that_cannot_start_says_why_and_lists_nothing(host: Host, name: str, reason: str) -> None:
    server = server_of(host, name)
    assert await server.list() == []
    assert reason in server.state.reason


async def test_a_disabled_server_is_not_started_and_refuses_calls(host: Host) -> None:
    off = server_of(host, "off")
    assert off.state.status is Status.DISABLED
    with pytest.raises(ServerUnreachable, match="disabled"):
        await off.call("x", {}, CONTEXT)


async def test_the_registry_exports_what_the_servers_list(host: Host) -> None:
    registry = Registry(host.servers, host.limits)
    await registry.refresh()
    assert [each.name for each in registry.list() if each.server == "strict"] == ["strict__good"]
    assert await registry.call("many__echo", {"text": "hi"}, CONTEXT) == ToolResult("hi")
    assert (await registry.call("many__echo", {"text": 1}, CONTEXT)).is_error


@pytest.mark.slow
async def test_a_server_that_dies_in_a_call_is_there_again_for_the_next() -> None:
    async with Host([config("many", "many.py"), config("calm", "raw.py", "calm")]) as host:
        many, calm = host.servers
        assert await host.settled(20)
        with pytest.raises(ToolFailed, match="ended during the call") as caught:
            await many.call("die", {}, CONTEXT)
        assert caught.value.may_have_run
        assert await calm.call("good", {}, CONTEXT) == ToolResult("well")
        assert await many.call("echo", {"text": "back"}, CONTEXT) == ToolResult("back")
        assert (many.state.status, many.state.restarts, calm.state.restarts) == (Status.READY, 1, 0)
        assert "last words" in many.stderr


@pytest.mark.slow
async def test_a_call_over_its_deadline_may_have_run_and_the_server_stays() -> None:
    async with Host([config("many", "many.py", timeout_s=1.5)]) as host:
        (many,) = host.servers
        await many.settled()
        with pytest.raises(ToolFailed, match=r"within 1\.5 s") as caught:
            await many.call("slow", {}, CONTEXT)
        assert caught.value.may_have_run
        assert await many.call("echo", {"text": "there"}, CONTEXT) == ToolResult("there")
        assert many.state.restarts == 0


@pytest.mark.slow
async def test_a_call_to_a_server_that_never_gets_ready_has_not_run() -> None:
    async with Host([config("mute", "raw.py", "mute", timeout_s=0.2)]) as host:
        with pytest.raises(ServerUnreachable, match="not ready"):
            await host.servers[0].call("good", {}, CONTEXT)


async def test_a_servers_own_error_is_not_the_end_of_its_connection_whatever_its_code_and_words() -> None:
    async with Host([config("gruff", "raw.py", "gruff")]) as host:
        (gruff,) = host.servers
        await gruff.settled()
        assert await gruff.call("good", {}, CONTEXT) == ToolResult("Error: Connection closed", is_error=True)
        assert (gruff.state.status, gruff.state.restarts) == (Status.READY, 0)


async def test_a_result_of_the_newer_protocol_that_does_not_say_so_is_complete() -> None:
    async with Host([config("terse", "raw.py", "terse")]) as host:
        (terse,) = host.servers
        await terse.settled()
        assert terse.state.era == "modern"
        assert await terse.call("good", {}, CONTEXT) == ToolResult("well")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (content(r"cut \ud83d"), ToolResult("cut \N{REPLACEMENT CHARACTER}")),
        (content(*["y"] * 1001), unread("it has 1001 parts of content, of which there may be 1000")),
        (f'{{"structuredContent": [{"0," * 50_000}0]}}', unread("it has more than 50000 JSON values")),
        ("7", unread("it is not a JSON-RPC message")),
    ],
    ids=["half a character", "many parts", "many values", "no result"],
)
async def test_an_answer_that_cannot_be_read_ends_its_call_at_once_by_saying_why(result: str, said: ToolResult) -> None:
    async with Host([config("careless", "raw.py", "careless")]) as host:
        (careless,) = host.servers
        await careless.settled()
        with anyio.fail_after(HANGS_S):
            assert await careless.call("good", {"result": result}, CONTEXT) == said
            assert await careless.call("good", {"result": content("well")}, CONTEXT) == ToolResult("well")


async def test_why_a_program_does_not_become_a_server_is_told_apart(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.write_text("#!/bin/sh\n")
    targets = {
        Failure.NO_PROGRAM: StdioTarget("no-such-command"),
        Failure.NOT_EXECUTABLE: StdioTarget(str(locked)),
        Failure.ENDED: StdioTarget(sys.executable, ("-c", "raise SystemExit(3)")),
        Failure.TIMED_OUT: StdioTarget(sys.executable, ("-c", "import time; time.sleep(60)")),
    }
    configs = [ServerConfig(failure, target, start_timeout_s=2) for failure, target in targets.items()]
    async with Host(configs) as host:
        await host.settled(20)
        assert {server.name: server.state.failure for server in host.servers} == {each: each for each in targets}


@pytest.mark.slow
async def test_a_large_text_is_cut_to_the_limit() -> None:
    async with Host([config("many", "many.py")], max_text=1000) as host:
        result = await host.servers[0].call("large", {}, CONTEXT)
        assert result.text == f"{'x' * 500}\n[2000 characters omitted]\n{'x' * 500}"


@pytest.mark.slow
async def test_a_message_without_an_end_costs_the_server_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.tools.host.stdio.MAX_MESSAGE_BYTES", 2**22)
    monkeypatch.setattr("tenuto.tools.host.stdio._GRACE_S", 0.2)
    async with Host([config("endless", "raw.py", "endless")]) as host:
        (endless,) = host.servers
        await endless.settled()
        assert endless.state.status is not Status.READY
        assert await endless.list() == []


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["calm", "stubborn"])
async def test_leaving_the_host_ends_the_servers(tmp_path: Path, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.tools.host.stdio._GRACE_S", 0.3)
    file = tmp_path / "pid"
    async with Host([config("raw", "raw.py", odd, str(file))]) as host:
        assert await host.settled(20)
        assert await host.servers[0].list()
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
    assert host.states[0].status is Status.STOPPED


@pytest.mark.slow
async def test_cancelling_the_owner_ends_the_servers_and_the_task_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with anyio.CancelScope() as scope:
        async with Host([config("raw", "raw.py", "calm", str(file))]) as host:
            await host.servers[0].settled()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    await anyio.lowlevel.checkpoint()
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


async def test_what_the_block_raises_is_not_wrapped() -> None:
    with pytest.raises(KeyError):
        async with Host([ServerConfig("missing", StdioTarget("no-such-command"))]):
            raise KeyError("ours")


@pytest.mark.slow
async def test_a_connection_leaves_no_pipe_open() -> None:
    """Not even to a server that was still writing when it was ended."""
    before = open_files()
    async with Host([config("endless", "raw.py", "endless"), config("calm", "raw.py", "calm")]) as host:
        await host.servers[1].settled()
        assert open_files() > before
    with anyio.fail_after(HANGS_S):
        while open_files() > before:  # transports close their pipes in the loop's next turns
            await anyio.lowlevel.checkpoint()
