"""What a server behind Tenuto asks reaches the person behind Tenuto's own client, in both eras on both sides."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp.types as t
import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.mcp.conftest import ERAS
from tests.mcp.test_approval import connected
from tests.mcp.test_http import answer_of

pytestmark = pytest.mark.slow

ASKER = Path(__file__).parent.parent / "tools" / "servers" / "asker.py"
RULES: list[dict[str, Any]] = [
    *({"user": name, "calls": [{"name": f"asker__{name}", "arguments": {}}]} for name in ("form", "page", "two")),
    {"tool_contains": "", "text": "heard: ${tool}"},
]


@pytest.fixture
def asking(start: Start, tmp_path: Path) -> Callable[[str], Server]:
    """Starts a server with another behind it that asks, in the era that is named."""

    def begin(era: str) -> Server:
        entry = {"permission": "auto", "era": era, **tool_server(ASKER)}
        config = {"mcpServers": {"asker": {**entry, "cwd": str(tmp_path)}}}
        (tmp_path / "mcp.json").write_text(json.dumps(config))
        return start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, cells=16_384)

    return begin


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_form_and_a_link_reach_the_person_and_their_answers_the_server(
    era: str, mode: str, asking: Callable[[str], Server]
) -> None:
    asked: list[t.ElicitRequestParams] = []

    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        asked.append(params)
        content: Any = {"name": "Ann"} if isinstance(params, t.ElicitRequestFormParams) else None
        return t.ElicitResult(action="accept", content=content)

    async with connected(asking(era), "http", mode, elicitation_callback=person) as client:
        answer = answer_of(await client.call_tool("chat", {"message": "form"}))
        assert answer["text"] == "heard: accept colour=blue name=Ann"
        assert answer_of(await client.call_tool("chat", {"message": "page"}))["text"] == "heard: accept"
        two = answer_of(await client.call_tool("chat", {"message": "two"}))
    form, page, *twice = asked
    assert isinstance(form, t.ElicitRequestFormParams)
    assert form.message == "asker asks: Who are you (1)?"
    assert form.requested_schema["required"] == ["name"]
    assert isinstance(page, t.ElicitRequestURLParams)
    assert page.url == "https://pay.example/1"
    assert len(twice) == 2
    assert two["text"].count("name=Ann") == 2


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_can_ask_nobody_gets_the_pause_and_resumes_it(
    mode: str, asking: Callable[[str], Server]
) -> None:
    async with connected(asking("modern"), "http", mode) as client:
        result = await client.call_tool("chat", {"message": "form"})
        answer = answer_of(result)
        assert (answer["status"], answer["pause"]["reason"]) == ("paused", "input")
        assert answer["pause"]["question"]["message"] == "Who are you (1)?"
        assert "Who are you (1)?" in "".join(each.text for each in result.content if isinstance(each, t.TextContent))
        resume = answer["pause"]["resume"]
        given = {"action": "accept", "content": {"name": "A"}}
        refused = await client.call_tool(resume["tool"], {**resume["arguments"], "answer": given})
        assert refused.is_error
        assert "content.name" in str(refused.content)
        given = {"action": "accept", "content": {"name": "Ann"}}
        rest = answer_of(await client.call_tool(resume["tool"], {**resume["arguments"], "answer": given}))
    assert rest["text"] == "heard: accept colour=blue name=Ann"
