"""Prompts from a folder of files, and what their arguments can be."""

import re
from collections.abc import Iterator
from pathlib import Path

import mcp.types as t
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError

from tenuto.errors import InvalidRequest
from tenuto.runtime.mcp.prompt_files import MOST_CHARACTERS, Argument, Message, Prompt, PromptFiles
from tests.e2e.server import Server, script
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected

DOCUMENTED = re.findall(r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(), re.DOTALL)
WAYS = [(transport, mode) for transport in ("http", "stdio") for mode in ERAS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "review.toml").write_text(DOCUMENTED[0])
    (folder / "prompts" / "broken.toml").write_text("[[messages]]\ntext = 5\n")
    (folder / "prompts" / "notes.txt").write_text("no prompt")
    running = Server(folder, script(folder / "model.json"), ("--prompts", str(folder / "prompts"))).start()
    yield running
    running.close()


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.mark.slow
async def test_a_documented_prompt_is_listed_filled_and_completed(way: tuple[str, str], server: Server) -> None:
    async with connected(server, *way) as client:
        (listed,) = (await client.list_prompts()).prompts
        filled = await client.get_prompt("review", {"language": "rust", "style": "Be kind."})
        plain = await client.get_prompt("review", {"language": "python"})
        completed = await client.complete(t.PromptReference(name="review"), {"name": "language", "value": "P"})
    assert (listed.name, listed.title) == ("review", "Review a change")
    assert [(one.name, one.required) for one in listed.arguments or ()] == [("language", True), ("style", False)]
    assert [(one.role, one.content.text) for one in filled.messages if isinstance(one.content, t.TextContent)] == [
        ("user", "You review a change in rust. Be kind."),
        ("assistant", "Show me the change."),
    ]
    assert isinstance(plain.messages[0].content, t.TextContent)
    assert plain.messages[0].content.text == "You review a change in python. "
    assert completed.completion.values == ["python"]
    assert "broken.toml is left out: messages.0.text" in server.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("nobodys", {}, "nobodys"),
        ("broken", {}, "broken"),
        ("../review", {"language": "rust"}, "review"),
        ("review", {}, "the argument 'language' is missing"),
        ("review", {"language": "rust", "mood": "x"}, "there is no argument 'mood'"),
    ],
)
async def test_what_cannot_be_filled_is_refused(
    name: str, arguments: dict[str, str], told: str, way: tuple[str, str], server: Server
) -> None:
    async with connected(server, *way) as client:
        with pytest.raises(MCPError, match=told) as refused:
            await client.get_prompt(name, arguments)
    assert refused.value.code == t.INVALID_PARAMS


@pytest.mark.slow
async def test_a_sessions_id_is_completed(way: tuple[str, str], server: Server) -> None:
    id = f"long-name-{'-'.join(way)}"
    async with connected(server, *way) as client:
        await client.call_tool("chat", {"message": "x", "session_id": id})
        template = t.ResourceTemplateReference(uri="session://{id}")
        completed = await client.complete(template, {"name": "id", "value": f"{id[:-2]}"})
        nothing = await client.complete(
            t.ResourceTemplateReference(uri="file:///{path}"), {"name": "path", "value": "/"}
        )
    assert completed.completion.values == [id]
    assert nothing.completion.values == []


def test_a_file_that_changes_is_read_anew(tmp_path: Path) -> None:
    files = PromptFiles(tmp_path)
    assert files.all() == {}
    (tmp_path / "one.toml").write_text('[[messages]]\ntext = "first"\n')
    assert files.get("one").messages[0].text == "first"
    (tmp_path / "one.toml").write_text('[[messages]]\ntext = "second"\n')
    assert files.get("one").messages[0].text == "second"
    assert PromptFiles(None).all() == PromptFiles(tmp_path / "missing").all() == {}


@given(st.text(), st.text(), st.text())
def test_what_is_given_is_put_in_as_it_is_and_read_no_further(before: str, value: str, after: str) -> None:
    head, tail = before.replace("{", ""), after.replace("}", "")
    prompt = Prompt(
        arguments=(Argument(name="a"), Argument(name="b")), messages=(Message(text=f"{head}{{{{ a }}}}{tail}"),)
    )
    (message,) = prompt.filled({"a": value, "b": "never"})
    assert message.text == f"{head}{value}{tail}"


def test_braces_around_anything_else_are_text() -> None:
    prompt = Prompt(messages=(Message(text="{{a}} {b} {{ c d }} {{}}"),))
    assert prompt.filled({})[0].text == "{{a}} {b} {{ c d }} {{}}"


def test_a_prompt_does_not_grow_beyond_its_bound() -> None:
    prompt = Prompt(arguments=(Argument(name="a"),), messages=(Message(text="{{a}}" * 1000),))
    with pytest.raises(InvalidRequest, match=f"{MOST_CHARACTERS}"):
        prompt.filled({"a": "x" * 10_000})
