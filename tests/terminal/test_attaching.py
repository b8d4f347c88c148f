"""Prompts and resources of MCP servers in `tenuto chat`: listed, named, completed, and given up."""

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, script
from tests.mcp import attaching
from tests.terminal import sly
from tests.terminal.screen import CTRL_C, CTRL_D, Terminal
from tests.terminal.test_chat import chat, piped

pytestmark = pytest.mark.slow

RULES: list[dict[str, Any]] = [
    {"user_contains": "count", "text": " ".join(str(number) for number in range(300)), "delay_ms": 120},
    {"user_matches": "^Be (?P<tone>.+)\\.$", "text": "I am ${tone}."},
    {"user_contains": "filled in", "text": "I read: ${user}"},
]
TAB = "\t"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("chat")
    programs = {"memos": attaching, "sly": sly}
    entries = {
        name: {"command": sys.executable, "args": [str(Path(str(program.__file__)))]}
        for name, program in programs.items()
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    running = Server(
        folder, script(folder / "model.json", RULES, cells=65536), ("--mcp-config", str(folder / "mcp.json"))
    )
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """A session of the test's own."""
    return f"of-{zlib.crc32(request.node.name.encode())}"


@pytest.fixture
def terminal(server: Server, session: str) -> Iterator[Terminal]:
    with chat(server, "--session", session) as running:
        running.until("a new chat")
        yield running


def items(server: Server, session: str) -> list[dict[str, Any]]:
    with server.client() as http:
        answer = http.get(f"/v1/sessions/{session}")
        return [] if answer.status_code == 404 else answer.json()["items"]


def test_prompts_and_resources_are_listed_with_their_servers(terminal: Terminal) -> None:
    terminal.line("/prompts")
    screen = terminal.until("Begin a talk")
    assert "about [tone]" in screen
    terminal.line("/resources")
    screen = terminal.until("own://{name}")
    assert "memo://sheet" in screen
    terminal.line("/help")
    terminal.until("@SERVER:URI in a message attaches one")


def test_a_prompt_is_sent_with_its_arguments(server: Server, terminal: Terminal, session: str) -> None:
    terminal.line("/prompt memos talk about='two words' tone=kind")
    terminal.until("I am kind.")
    said = [item["text"] for item in items(server, session)]
    assert said == ["Let us talk about two words.", "Gladly.", "Be kind.", "I am kind."]


def test_what_a_prompt_needs_is_asked_for(server: Server, terminal: Terminal, session: str) -> None:
    terminal.line("/prompt memos talk")
    terminal.until("about (What it is about; empty: give up) >")
    terminal.line("old tea")
    terminal.until("I am plain.")
    assert items(server, session)[0]["text"] == "Let us talk about old tea."


@pytest.mark.parametrize("key", ["\r", CTRL_C])
def test_a_prompt_can_be_given_up(key: str, server: Server, terminal: Terminal, session: str) -> None:
    terminal.line("/prompt memos talk")
    terminal.until("give up) >")
    terminal.keys(key)
    terminal.until("the prompt was not sent")
    assert items(server, session) == []
    terminal.line("hello")
    terminal.until(" cached")
    terminal.keys(CTRL_D)
    assert terminal.exit_code() == 0


REFUSED = {
    "/prompt": "name a prompt",
    "/prompt nothing": "there is no prompt 'nothing'",
    "/prompt memos nothing": "there is no prompt 'nothing'",
    "/prompt talk about=tea": "several servers have 'talk': say /prompt SERVER talk, of memos, sly",
    "/prompt shows tea": "'tea' is no argument",
    "/prompt shows about=tea": "shows has no argument 'about'; it has: none",
    "/prompt memos talk about=a about=b": "about is given twice",
    "/prompt memos talk about=Ann's": "a quotation mark is open",
    "/prompt ends": "the prompt ends with a message of the assistant's",
    "look at @memo://a": "several servers have memo://a: say @SERVER:memo://a, of memos, sly",
    "look at @memos:memo://none": "there is no resource 'memo://none'",
    "look at @memos:memo://sheet": "application/pdf, 5 bytes: text and images alone can be attached",
    "look at @memo://huge": "there is room for 1048576",
}


def test_what_cannot_be_sent_is_one_sentence_and_nothing_is_sent(
    server: Server, terminal: Terminal, session: str
) -> None:
    for number, line in enumerate(REFUSED, 1):
        terminal.line(line)
        terminal.until("error: ", number)
    terminal.line("/nonsense")
    screen = " ".join(terminal.until("unknown command").split())
    assert [said for said in REFUSED.values() if said not in screen] == []
    assert items(server, session) == []


def test_a_resource_comes_before_the_message_that_names_it(server: Server, terminal: Terminal, session: str) -> None:
    terminal.line("compare (@memos:memo://first), @memo://long; and @memos:memo://first.")
    terminal.until(" cached")
    assert terminal.text.count("attached: memo://first of memos") == 1
    first, long, text, _ = items(server, session)
    assert first["source"]["uri"] == "memo://first"
    assert long["source"] == {
        "kind": "mcp_resource",
        "server": "memos",
        "uri": "memo://long",
        "mime_type": "text/plain",
    }
    assert text["text"] == "compare (@memos:memo://first), @memo://long; and @memos:memo://first."
    terminal.line(f"/resume {session}")
    screen = terminal.until("> @memos:memo://long")
    assert "line 17" not in screen, "what was read is not shown again"


@pytest.mark.parametrize(
    "said", ["mail ann@example.org: now", "@name", "ask @ann: is it 12:30?", "@memo://", "see @other://name and 3@4:5"]
)
def test_what_is_no_resource_stays_text(said: str, server: Server) -> None:
    answer = piped(server, "chat", said)
    assert (answer.stdout, answer.stderr) == (f"{said}\n", "")


def test_a_word_with_a_servers_name_that_is_no_resource_is_told(server: Server) -> None:
    answer = piped(server, "chat", "see @memos:paper")
    assert (answer.stdout, answer.stderr) == ("see @memos:paper\n", "no such resource, sent as text: @memos:paper\n")


def test_one_message_attaches_and_a_pipe_does_not(server: Server) -> None:
    answer = piped(server, "chat", "--session", "one", "look at @memos:memo://one")
    assert answer.stderr == "attached: memo://one of memos\n"
    assert items(server, "one")[0]["text"].endswith("of memo://one")
    gone = piped(server, "chat", "look at @memos:memo://none")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "there is no resource 'memo://none'" in gone.stderr
    answer = piped(server, "chat", "--session", "two", text="look at @memos:memo://one")
    assert answer.stdout == "look at @memos:memo://one\n"
    assert len(items(server, "two")) == 2


def test_what_servers_say_does_not_reach_the_terminal(server: Server, terminal: Terminal) -> None:
    """The terminal's emulator would act on escape sequences: the first line would be gone."""
    for line, last in (("/prompts", "plain"), ("/resources", "own://{name}")):
        terminal.line(line)
        screen = terminal.until(last)
        assert "a new chat" in screen
        assert sly.TURNED not in screen
    assert "\ufffd[2J" in terminal.text
    assert not any(line.lstrip().startswith(("fake", "two")) for line in terminal.text.splitlines())
    terminal.line("/prompt plain")
    screen = terminal.until("give up) >")
    assert "a new chat" in screen
    assert "say > yes" in screen
    terminal.line("this")
    terminal.until("I read: filled in with this")


def test_names_are_completed(terminal: Terminal) -> None:
    terminal.keys(f"/prompt me{TAB}")
    terminal.until("memos talk")
    terminal.keys(CTRL_C)
    terminal.line("")
    terminal.keys(f"/prompt memos talk ab{TAB}")
    terminal.until("/prompt memos talk about=")
    terminal.line("tea")
    terminal.until("I am plain.")
    terminal.keys(f"what is @memos:memo://lo{TAB}")
    terminal.until("what is @memos:memo://long")
    terminal.line("")
    terminal.until("attached: memo://long of memos")
    terminal.keys(f"/res{TAB}")
    terminal.until("/resume")


def test_an_answer_that_begins_late_is_shown(server: Server, terminal: Terminal) -> None:
    """By then the stream has begun, without saying of which run it is."""
    terminal.line("look at @memos:memo://shut")
    terminal.until("attached: memo://shut")
    part = {"type": "mcp_resource", "server": "memos", "uri": "memo://shut"}
    body = {"messages": [{"role": "user", "content": [part]}], "stream": True}
    with server.client() as http, http.stream("POST", "/v1/chat/completions", json=body) as late:
        assert next(late.iter_raw()).startswith(b": "), "the chat's stream, which is older, is alive too"
        opening = {"server": "memos", "uri": "memo://open"}
        with server.client() as opener:
            opener.post("/v1/mcp/resources/read", json=opening).raise_for_status()
        terminal.until(" cached")
        assert "look at @memos:memo://shut" in terminal.text


def test_a_reading_that_hangs_is_stopped_by_ctrl_c(server: Server, terminal: Terminal, session: str) -> None:
    terminal.line("look at @memo://slow")
    terminal.until("attached: memo://slow")
    terminal.keys(CTRL_C)
    terminal.until("stopped before there was an answer")
    terminal.line("hello")
    terminal.until(" cached")
    assert [item["text"] for item in items(server, session)] == ["hello", "hello"]
