"""The suite's fixture: tools that take long, each a call of the product's own `chat`, which its model answers by rote.

Calls, tasks, what is asked in them and their results come from the product's handlers. What the model says and the
servers behind are the test's data.
"""

import sys
from pathlib import Path
from typing import Any

import mcp.types as t
from mcp.server import Server

from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.mcp.calls import Calls
from tenuto.runtime.mcp.direct_calls import DirectCalls
from tenuto.runtime.mcp.gateway import Behind
from tenuto.runtime.mcp.news import News
from tenuto.runtime.mcp.task_requests import TaskRequests
from tenuto.runtime.mcp.task_shapes import expect_extension
from tenuto.runtime.mcp.tasks import Tasks
from tests.conformance.tools import NOTHING, STRING, result, text

SERVERS = Path(__file__).parents[1] / "tools" / "servers"
CONFIG = {
    "mcpServers": {
        "many": {"command": sys.executable, "args": [str(SERVERS / "many.py")], "permission": "ask"},
        "asker": {"command": sys.executable, "args": [str(SERVERS / "asker.py")], "permission": "auto"},
    }
}
RULES: list[dict[str, Any]] = [
    {"user": "0 seconds", "text": "done"},
    {"user": "1 seconds", "text": "0123456789", "delay_ms": 100},
    {"user": "2 seconds", "text": "0123456789", "delay_ms": 200},
    {"user": "60 seconds", "text": "0123456789" * 30, "delay_ms": 200},
    {"user": "fail", "text": "0123456789", "delay_ms": 100, "fail": "forward", "fail_at": 5},
    {"user": "confirm", "calls": [{"name": "many__echo", "arguments": {"text": "hi"}}]},
    {"user": "name", "calls": [{"name": "asker__form", "arguments": {}}]},
    {"tool_contains": "name=", "text": "heard: ${tool}", "delay_ms": 100},
]
SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}, "label": STRING}, "required": ["seconds"]}
AT_ONCE, LATER_S = 0.0, 2.0
TTL_S = 3600.0

SAID = {
    "slow_compute": "{seconds} seconds",
    "failing_job": "fail",
    "protocol_error_job": "fail",
    "confirm_delete": "confirm",
    "multi_input": "confirm",
    "test_tool_with_task": "name",
}
"""What the model is told in the place of the call."""
ASKS_FIRST = ("test_tool_with_task",)
"""What they ask is asked in the call, which becomes a task after that."""
TASKS_ONLY = ("failing_job", "test_tool_with_task")
SCHEMAS = {"slow_compute": SECONDS, "confirm_delete": {"type": "object", "properties": {"filename": STRING}}}


class Working:
    """Those tools, over the product's loop."""

    def __init__(self, runner: LoopPort) -> None:
        news, tasks = News(), Tasks(runner, TTL_S)
        self._about = TaskRequests(runner, news, tasks, principal_of)
        self._calls = {
            seconds: Calls(
                runner,
                news,
                Behind((), runner.registry, []),
                DirectCalls(1.0),
                principal_of,
                tasks,
                task_after_s=seconds,
            )
            for seconds in (AT_ONCE, LATER_S)
        }

    def serve(self, server: Server[Any]) -> None:
        """Let the fixture answer what is asked about tasks."""
        self._about.serve(server)

    async def call(self, context: Any, params: t.CallToolRequestParams) -> Any:
        """One of them."""
        given = params.arguments or {}
        if params.name == "greet":
            return result(text(f"Hello, {given.get('name')}!"))
        if params.name in TASKS_ONLY:
            expect_extension(context)
        chat = {"name": "chat", "arguments": {"message": SAID[params.name].format(**given)}}
        calls = self._calls[LATER_S if params.name in ASKS_FIRST else AT_ONCE]
        return await calls.call(context, params.model_copy(update=chat))


GREET = t.Tool(name="greet", description="Greets.", input_schema={"type": "object", "properties": {"name": STRING}})
TOOLS = {
    "greet": GREET,
    **{
        name: t.Tool(name=name, description=f"What the suite calls {name}.", input_schema=SCHEMAS.get(name, NOTHING))
        for name in SAID
    },
}
