import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.forked import program
from tests.e2e.server import Server, environment
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow


def tenuto(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program(*arguments),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        cwd=home,
        env={**environment(home), **variables},
        check=False,
    )


def ask(server: Server, text: str, **extra: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], **extra}
    with server.client() as client:
        return client.post("/v1/chat/completions", json=body)


def test_the_ready_line_comes_when_requests_are_answered(start: Start) -> None:
    server = start(whole=True)
    with server.client() as client:
        assert client.get("/ready").status_code == 200
    assert ask(server, "hello").json()["choices"][0]["message"]["content"] == "hello"


HEAP = """
import atexit, gc, sys
from tenuto.__main__ import main
atexit.register(lambda: print("heap", gc.get_freeze_count(), len(gc.get_objects()), file=sys.stderr))
main()
"""


def test_what_a_server_began_with_is_not_looked_at_by_the_garbage_collector_again(start: Start) -> None:
    server = start(program=("-c", HEAP))
    ask(server, "hello").raise_for_status()
    server.stop()
    frozen, looked_at = map(int, server.log.partition("heap ")[2].split()[:2])
    assert frozen > 10 * looked_at, "a collection stops all threads for as long as it looks"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_frees_the_folder(start: Start, number: signal.Signals) -> None:
    server = start(whole=True)
    assert server.stop(number) == 0
    assert not (server.data_dir / "owner.json").exists()
    assert "Traceback" not in server.log
    server.start()


def test_a_session_is_there_after_kill_9(start: Start) -> None:
    server = start(whole=True)
    ask(server, "first", session_id="s").raise_for_status()
    server.kill()
    server.start()
    with server.client() as client:
        texts = [item.get("text") for item in client.get("/v1/sessions/s").json()["items"]]
    assert texts == ["first", "first"]


def test_a_stopping_server_lets_an_answer_end(start: Start) -> None:
    server = start(rules=[{"user": "slow", "text": "x" * 40, "delay_ms": 20}])
    with (
        server.client() as client,
        client.stream(
            "POST", "/v1/chat/completions", json={"messages": [{"role": "user", "content": "slow"}], "stream": True}
        ) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in rest if chunk["choices"])
    assert said.endswith("x")
    assert rest[-1]["choices"][0]["finish_reason"] == "stop"
    assert server.process.wait(20) == 0


def test_a_folder_has_one_owner(start: Start) -> None:
    server = start()
    second = tenuto("serve", "--port", "0", "--data-dir", str(server.data_dir), home=server.folder)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert server.url in second.stderr


def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = tenuto("serve", "--port", port, "--data-dir", str(tmp_path / "d"), home=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"tenuto: port {port} on 127.0.0.1 is in use; choose another --port, 0 for any\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--port", "x"), "--port: "),
        (("--host", "0.0.0.0"), "--api-key"),
        (("--mcp-config", "nowhere.json"), "nowhere.json"),
        (("--config", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_wrong_settings_end_it_with_one_clear_line(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = tenuto("serve", "--data-dir", str(tmp_path / "d"), "--port", "0", *arguments, home=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert done.stderr.startswith("tenuto: ")
    assert done.stderr.count("\n") == 1


def test_a_model_that_is_not_there_ends_it_with_one_clear_line(tmp_path: Path) -> None:
    done = tenuto("serve", "--data-dir", str(tmp_path / "d"), "--port", "0", "--model", "no.gguf", home=tmp_path)
    assert done.returncode == 1
    assert "no.gguf" in done.stderr
    assert done.stderr.count("\n") == 1


def test_settings_come_from_environment_and_file_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('api_key = ["from-file"]\n')
    server = start("--config", str(tmp_path / "other.toml"))
    assert ask(server, "x").status_code == 401
    with server.client(headers={"Authorization": "Bearer from-file"}) as client:
        assert client.get("/v1/models").status_code == 200


def test_several_models_are_served_and_the_first_is_the_default(start: Start, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"rules": [{"text": "other"}]}')
    server = start("--model", f"scripted:{tmp_path / 'other.json'}", rules=[{"text": "first"}])
    assert ask(server, "x").json()["choices"][0]["message"]["content"] == "first"
    assert ask(server, "x", model="other").json()["choices"][0]["message"]["content"] == "other"


def test_the_version_and_the_help_need_no_backend(tmp_path: Path) -> None:
    assert tenuto("--version", home=tmp_path).stdout.startswith("tenuto ")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tenuto", "--help"],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=True,
        env=environment(tmp_path),
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.split("\n")}
    assert "serve" in done.stdout
    assert "click" in imported
    assert imported.isdisjoint({"pydantic", "llama_cpp", "mcp", "numpy"})
