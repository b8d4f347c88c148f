"""`tenuto chat` in a real terminal: what a person sees, types and stops."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.forked import program
from tests.e2e.server import Server, environment
from tests.patience import HANGS_S
from tests.terminal.screen import CTRL_C, CTRL_D, Terminal

pytestmark = pytest.mark.slow

SERVER = Path(__file__).parent / "pad.py"
ADD = {"user": "add", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "20 + 22"}}]}
NOTE = {"user_matches": "^write (.+)$", "calls": [{"name": "pad__write", "arguments": {"text": "${1}"}}]}
ENDLESS = {"user": "count", "text": " ".join(str(number) for number in range(300)), "delay_ms": 120}
TOOL = {"tool_contains": "", "text": "the result: ${tool}"}
RULES: list[dict[str, Any]] = [ENDLESS, TOOL, ADD, NOTE]


def chat(server: Server, *arguments: str) -> Terminal:
    return Terminal(server.folder, "chat", "--data-dir", str(server.data_dir), *arguments)


def piped(server: Server, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        program(*arguments, "--data-dir", str(server.data_dir)),
        input=text,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env=environment(server.folder),
        cwd=server.folder,
        check=False,
    )


@pytest.fixture
def asking(start: Start, tmp_path: Path) -> Server:
    """A server with a configured tool, for which a person is asked."""
    config = tmp_path / "mcp.json"
    config.write_text(f'{{"mcpServers": {{"pad": {{"command": "{sys.executable}", "args": ["{SERVER}"]}}}}}}')
    return start("--mcp-config", str(config), rules=RULES)


def test_tool_calls_and_the_answer_and_what_it_cost_are_shown(start: Start) -> None:
    server = start(rules=RULES)
    with chat(server, "--session", "sums") as terminal:
        terminal.until("a new chat: sums")
        terminal.line("add")
        screen = terminal.until(" cached")
        assert '→ calculator__evaluate(expression="20 + 22")' in screen
        assert "← 42" in screen
        assert "the result: 42" in screen
        terminal.keys(CTRL_D)
        terminal.until("to continue: tenuto chat --session sums")
        assert terminal.exit_code() == 0


def test_an_answer_is_shown_while_it_comes_and_ctrl_c_stops_it_and_keeps_the_chat(start: Start) -> None:
    server = start(rules=RULES)
    with chat(server, "--session", "s") as terminal:
        terminal.until("a new chat: s")
        terminal.line("count")
        assert "299" not in terminal.until("0 1 2 3")
        terminal.keys(CTRL_C)
        assert "299" not in terminal.until("stopped; what was said is kept")
        terminal.line("hello there")
        terminal.until(" cached")
        assert terminal.text.count("hello there") == 2
        terminal.keys(CTRL_C)
        terminal.until("press Ctrl-C again to quit")
        terminal.keys(CTRL_C)
        assert terminal.exit_code() == 0
    with server.client() as client:
        items = client.get("/v1/sessions/s").json()["items"]
    assert [item["kind"] for item in items] == ["user", "assistant", "user", "assistant"]
    assert items[1]["incomplete"] is True


def test_ctrl_c_twice_leaves_in_the_middle_of_an_answer(start: Start) -> None:
    server = start(rules=RULES)
    with chat(server) as terminal:
        terminal.until("a new chat")
        terminal.line("count")
        terminal.until("0 1 2 3")
        terminal.keys(CTRL_C)
        terminal.until("what was said is kept")
        terminal.keys(CTRL_C)
        assert terminal.exit_code() == 0


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        (["y"], "the result: written: a"),
        (["n"], "the result: The user denied this tool call."),
        (["maybe", "d", "use pencil"], "use pencil"),
    ],
)
def test_an_approval_is_asked_and_answered_inline(asking: Server, typed: list[str], seen: str) -> None:
    with chat(asking) as terminal:
        terminal.until("a new chat")
        terminal.line("write a")
        terminal.until('may it call pad__write(text="a")')
        for number, text in enumerate(typed, 1):
            if text == "use pencil":
                terminal.until("what should the model be told >")
            else:
                terminal.until("say why >", number)
            terminal.line(text)
        terminal.until(" cached")
        assert seen in terminal.text


def test_what_is_always_approved_is_not_asked_again(asking: Server) -> None:
    with chat(asking) as terminal:
        terminal.until("a new chat")
        terminal.line("write a")
        terminal.until("say why >")
        terminal.line("a")
        terminal.until(" cached")
        terminal.line("write b")
        terminal.until(" cached", 2)
        assert "the result: written: b" in terminal.text
        assert terminal.text.count("may it call") == 1


def test_a_chat_and_its_open_question_are_resumed_by_name_after_a_restart(asking: Server) -> None:
    with chat(asking, "--session", "trip") as terminal:
        terminal.until("a new chat: trip")
        terminal.line("first words")
        terminal.until(" cached")
        terminal.line("write a")
        terminal.until("say why >")
        terminal.keys(CTRL_D)
        assert terminal.exit_code() == 0
    asking.kill()
    asking.start()
    with chat(asking, "--session", "trip") as terminal:
        screen = terminal.until("say why >")
        assert "> first words" in screen
        assert "> write a" in screen
        terminal.line("y")
        terminal.until("the result: written: a")


def test_a_chat_goes_on_by_itself_when_its_server_has_been_restarted(start: Start) -> None:
    server = start(rules=RULES)
    with chat(server) as terminal:
        terminal.until("a new chat")
        terminal.line("one")
        terminal.until(" cached")
        server.kill()
        server.start()
        terminal.line("two")
        terminal.until(" cached", 2)


def test_commands_list_fork_and_begin_chats(start: Start) -> None:
    server = start(rules=RULES)
    with chat(server, "--session", "a") as terminal:
        terminal.until("a new chat: a")
        terminal.line("hello")
        terminal.until(" cached")
        terminal.line("/fork b")
        terminal.until("this is now b, a copy")
        terminal.line("/new c")
        terminal.until("a new chat: c")
        terminal.line("/sessions")
        terminal.until("last used")
        terminal.line("/nonsense")
        terminal.until("unknown command /nonsense")
        terminal.line("/help")
        terminal.until("/resume NAME")
        terminal.line("/quit")
        assert terminal.exit_code() == 0
    assert {line.split()[0] for line in piped(server, "sessions", "list").stdout.splitlines()[1:]} == {"a", "b"}


def test_a_paste_of_several_lines_is_one_message(start: Start) -> None:
    server = start(rules=RULES)
    with chat(server, "--session", "p") as terminal:
        terminal.until("a new chat: p")
        terminal.keys("\x1b[200~line one\nline two\x1b[201~")
        terminal.until("line two")
        terminal.line("")
        terminal.until(" cached")
    with server.client() as client:
        assert client.get("/v1/sessions/p").json()["items"][0]["text"] == "line one\nline two"


def test_escape_sequences_of_a_model_do_not_reach_the_terminal(start: Start) -> None:
    server = start(rules=[{"user": "trick", "text": "a\x1b[2Jb\x9b1mc"}])
    answer = piped(server, "chat", "trick")
    assert answer.stdout == "a\ufffd[2Jb\ufffd1mc\n"


def test_in_a_pipe_the_answer_alone_is_on_stdout(start: Start) -> None:
    server = start(rules=RULES)
    answer = piped(server, "chat", "--session", "s", text="add")
    assert (answer.returncode, answer.stdout) == (0, "the result: 42\n")
    assert "calculator__evaluate" in answer.stderr
    again = piped(server, "chat", "--session", "s", "hello")
    assert (again.returncode, again.stdout, again.stderr) == (0, "hello\n", "")


def test_in_a_pipe_calls_that_need_approval_are_denied_unless_yes_is_given(asking: Server) -> None:
    denied = piped(asking, "chat", "write a")
    assert "Nobody is there to approve this call." in denied.stdout
    assert "approve with --yes" in denied.stderr
    assert piped(asking, "chat", "--yes", "write a").stdout == "the result: written: a\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["chat", ""], 2, "no message: give one"),
        (["chat", "--model", "other", "hi"], 1, "has no model 'other', only model"),
        (["chat", "--session", "no good", "hi"], 1, "session_id"),
        (["chat", "--nonsense"], 2, "--nonsense"),
    ],
)
def test_what_goes_wrong_is_one_message_and_an_exit_code(
    start: Start, arguments: list[str], code: int, said: str
) -> None:
    ended = piped(start(rules=RULES), *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = piped(Server(tmp_path, ""), "chat", "--url", "http://127.0.0.1:9", "hi")
    assert ended.returncode == 1
    assert "http://127.0.0.1:9 cannot be reached" in ended.stderr


def test_the_embedded_model_answers_in_the_terminal(start: Start, embedded_model: str) -> None:
    server = start(model=embedded_model)
    with chat(server) as terminal:
        terminal.until("a new chat")
        terminal.line("What is 17 * 23?")
        screen = terminal.until(" cached")
        assert "→ calculator__evaluate" in screen
        assert "← 391" in screen
        assert screen.count("391") >= 2
