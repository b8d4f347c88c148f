"""The registry: stable names, arguments checked before a call, bounded concurrency, deadlines, and errors in words."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from tenuto.errors import ConfigurationError, ToolFailed
from tenuto.sessions.items import ToolSpec
from tenuto.tools.builtin import Calculator, Clock
from tenuto.tools.registry import CallLimits, Registry
from tenuto.tools.spec import CallContext, Tool, ToolResult
from tests.patience import HANGS_S

CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def echo(arguments: dict[str, Any]) -> ToolResult:
    return ToolResult(arguments.get("text", "nothing"))


class Server:
    """A server whose tools all do the same."""

    def __init__(
        self,
        name: str,
        tools: Sequence[str] = ("echo",),
        answer: Callable[[dict[str, Any]], Awaitable[ToolResult]] = echo,
        schema: dict[str, Any] = TEXT,
    ) -> None:
        self.name, self.tools, self.answer, self.schema = name, tools, answer, schema

    async def list(self) -> list[Tool]:
        return [Tool(ToolSpec(tool, "", self.schema)) for tool in self.tools]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        return await self.answer(arguments)


async def registry_of(*servers: Any, **limits: CallLimits) -> Registry:
    registry = Registry(servers, limits)
    await registry.refresh()
    return registry


async def test_tools_are_listed_in_the_order_of_servers_and_listings() -> None:
    registry = await registry_of(Server("b", ["z", "a"]), Clock(), Server("a", ["m"]))
    assert [each.name for each in registry.list()] == ["b__z", "b__a", "clock__now", "clock__convert", "a__m"]
    assert [each.server for each in registry.list()] == ["b", "b", "clock", "clock", "a"]


async def test_a_model_sees_the_exported_name_and_the_server_its_own() -> None:
    called: list[str] = []

    class Recording(Server):
        async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
            called.append(name)
            return ToolResult("")

    registry = await registry_of(Recording("fs", ["read.file"]))
    (exported,) = registry.list()
    assert exported.spec.name == exported.name != "read.file"
    await registry.call(exported.name, {"text": ""}, CONTEXT)
    assert called == ["read.file"]


async def test_a_call_reaches_its_server() -> None:
    registry = await registry_of(Calculator(), Server("s"))
    assert await registry.call("calculator__evaluate", {"expression": "6*7"}, CONTEXT) == ToolResult("42")
    assert await registry.call("s__echo", {"text": "hi"}, CONTEXT) == ToolResult("hi")


async def test_an_unknown_tool_is_an_error_that_names_those_there_are() -> None:
    registry = await registry_of(Clock())
    result = await registry.call("clock__never", {}, CONTEXT)
    assert result == ToolResult(
        "Error: there is no tool 'clock__never'; the tools are: clock__now, clock__convert", is_error=True
    )
    assert registry.find("clock__never") is None
    assert registry.find("clock__now") is not None


async def test_of_thousands_of_tools_the_error_names_some() -> None:
    registry = await registry_of(Server("s", [f"tool_{number}" for number in range(5000)]))
    result = await registry.call("s__never", {}, CONTEXT)
    assert "s__tool_0, s__tool_1" in result.text
    assert result.text.endswith(" and 4900 more")
    assert len(result.text) < 4000


async def test_arguments_that_do_not_fit_never_reach_the_server() -> None:
    async def unreachable(arguments: dict[str, Any]) -> ToolResult:
        raise AssertionError

    registry = await registry_of(Server("s", answer=unreachable))
    result = await registry.call("s__echo", {"text": 5}, CONTEXT)
    assert result == ToolResult(
        'Error: the arguments of s__echo are not valid: text: 5 is not of type "string"', is_error=True
    )


async def test_a_tool_listed_twice_is_taken_once() -> None:
    registry = await registry_of(Server("s", ["a", "b", "a"]))
    assert [each.name for each in registry.list()] == ["s__a", "s__b"]


async def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'clock'"):
        Registry([Clock(), Server("clock")])


async def test_a_server_that_cannot_list_does_not_harm_the_others() -> None:
    class Broken(Server):
        async def list(self) -> list[Tool]:
            raise OSError("gone")

    registry = await registry_of(Broken("a"), Server("b"))
    assert [each.name for each in registry.list()] == ["b__echo"]


async def test_a_tool_whose_server_went_away_stays_callable_and_is_not_listed() -> None:
    async def gone(arguments: dict[str, Any]) -> ToolResult:
        raise ToolFailed("s is not connected", may_have_run=False)

    server = Server("s", answer=gone)
    registry = await registry_of(server)
    server.tools = []
    await registry.refresh()
    assert registry.list() == []
    with pytest.raises(ToolFailed, match="not connected"):
        await registry.call("s__echo", {"text": ""}, CONTEXT)


async def test_a_tool_that_its_server_gave_up_is_unknown() -> None:
    server = Server("s", ["old", "kept"])
    registry = await registry_of(server)
    server.tools = ["kept", "new"]
    await registry.refresh()
    assert [each.name for each in registry.list()] == ["s__kept", "s__new"]
    assert (await registry.call("s__old", {"text": ""}, CONTEXT)).is_error


async def test_an_exception_in_a_server_is_a_failure_that_may_have_run() -> None:
    async def crash(arguments: dict[str, Any]) -> ToolResult:
        raise KeyError("s3cret")

    registry = await registry_of(Server("s", answer=crash))
    with pytest.raises(ToolFailed) as caught:
        await registry.call("s__echo", {"text": ""}, CONTEXT)
    assert caught.value.may_have_run
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("timeout", "limit"), [(0.01, 60), (None, 0.01), (60, 0.01)])
async def test_a_call_ends_at_its_deadline_and_may_have_run(timeout: float | None, limit: float) -> None:
    stopped = anyio.Event()

    async def sleep(arguments: dict[str, Any]) -> ToolResult:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    registry = await registry_of(Server("s", answer=sleep), s=CallLimits(timeout_s=limit))
    with anyio.fail_after(HANGS_S), pytest.raises(ToolFailed) as caught:
        await registry.call("s__echo", {"text": ""}, CONTEXT, timeout)
    assert caught.value.may_have_run
    assert stopped.is_set()


class Held:
    """Calls that wait until they are let go, and the largest number of them at once."""

    def __init__(self) -> None:
        self.release, self.running, self.most = anyio.Event(), 0, 0

    async def answer(self, arguments: dict[str, Any]) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.release.wait()
        self.running -= 1
        return ToolResult("done")


async def test_no_more_calls_run_at_a_time_than_allowed_and_all_end() -> None:
    held = Held()
    registry = await registry_of(Server("s", answer=held.answer), s=CallLimits(concurrency=2))
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await registry.call("s__echo", {"text": ""}, CONTEXT))

    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(7):
                tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert held.running == 2
            held.release.set()
    assert held.most == 2
    assert [result.text for result in results] == ["done"] * 7


async def test_a_full_queue_refuses_at_once_and_nothing_has_run() -> None:
    held = Held()
    registry = await registry_of(Server("s", answer=held.answer), s=CallLimits(concurrency=1, waiting=1))
    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(registry.call, "s__echo", {"text": ""}, CONTEXT)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ToolFailed, match="busy") as caught:
                await registry.call("s__echo", {"text": ""}, CONTEXT)
            assert not caught.value.may_have_run
            held.release.set()


async def test_a_wait_for_a_place_counts_against_the_deadline_and_has_not_run() -> None:
    held = Held()
    registry = await registry_of(Server("s", answer=held.answer), s=CallLimits(concurrency=1))
    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(registry.call, "s__echo", {"text": ""}, CONTEXT)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ToolFailed, match="busy") as caught:
                await registry.call("s__echo", {"text": ""}, CONTEXT, 0.01)
            assert not caught.value.may_have_run
            held.release.set()
    assert (await registry.call("s__echo", {"text": ""}, CONTEXT)).text == "done"


async def test_a_cancelled_call_gives_its_place_back() -> None:
    held = Held()
    registry = await registry_of(Server("s", answer=held.answer), s=CallLimits(concurrency=1))
    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(registry.call, "s__echo", {"text": ""}, CONTEXT)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        held.release.set()
        assert (await registry.call("s__echo", {"text": ""}, CONTEXT)).text == "done"
