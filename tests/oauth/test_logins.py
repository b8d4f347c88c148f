"""Logins at MCP servers of others: by a person, by a client of its own, by a command; kept, renewed and forgotten."""

import json
import logging
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from anyio.abc import TaskGroup

from tenuto.errors import ConfigurationError
from tenuto.tools.host import Failure, Host, Status
from tenuto.tools.host.login import login
from tenuto.tools.host.oauth_fetch import LoginFailed
from tenuto.tools.host.token_file import Kept, TokenFile
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, kept_in, parse_mcp_config
from tenuto.tools.spec import CallContext
from tests.e2e.server import Server, script
from tests.oauth.authority import Authority
from tests.oauth.guarded import Guarded
from tests.oauth.guarded import guarded as running
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow
CLIENT = {"grant": "client_credentials", "client_id": "a"}
CONTEXT = CallContext("ada", "session", "run", "call")


@pytest.fixture
def server(authority: Authority) -> Iterator[Guarded]:
    with running(authority) as one:
        yield one


def config(server: Guarded, data_dir: Path, **entry: Any) -> ServerConfig:
    text = json.dumps({"mcpServers": {"far": {"url": f"{server.url}/mcp", "type": "http", **entry}}})
    return kept_in(parse_mcp_config(text, "mcp.json", {"SECRET": "the-canary"}), data_dir)[0]


def showing(tasks: TaskGroup, visit: Callable[[str], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    def show(url: str) -> None:
        tasks.start_soon(visit, url)

    return show


def consent(url: str) -> None:
    """A browser in which nobody is asked anything."""
    assert httpx.get(url, follow_redirects=True, timeout=HANGS_S).status_code == 200


async def log_in(server: Guarded, data_dir: Path, **entry: Any) -> TokenFile:
    target = config(server, data_dir, **entry).target
    assert isinstance(target, HttpTarget)
    assert target.oauth is not None
    assert target.oauth.folder is not None
    async with anyio.create_task_group() as browser:

        def show(url: str) -> None:
            browser.start_soon(anyio.to_thread.run_sync, consent, url)

        await login(target.url, target.oauth, show, HANGS_S)
    return TokenFile(target.oauth.folder, "far", target.url)


async def ready(host: Host) -> None:
    with anyio.fail_after(HANGS_S):
        while host.states[0].status is not Status.READY:  # noqa: ASYNC110  (a supervisor moves it)
            await anyio.sleep(0.02)


async def test_a_server_that_wants_a_login_says_which_command_and_is_used_once_somebody_has_logged_in(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    async with Host([config(server, tmp_path)]) as host:
        await host.settled(HANGS_S)
        state = host.states[0]
        assert (state.status, state.failure) == (Status.WAITING, Failure.LOGIN_REQUIRED)
        assert "`tenuto mcp login far`" in state.reason
        assert authority.clients == {}  # nobody was registered, and no browser opened
        await log_in(server, tmp_path)
        await ready(host)
        result = await host.servers[0].call("secret", {}, CONTEXT)
    assert result.text == "42"


async def test_a_login_is_a_file_for_its_user_alone(server: Guarded, tmp_path: Path) -> None:
    file = await log_in(server, tmp_path)
    folder = tmp_path / "mcp-tokens"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert (await file.read()).tokens is not None
    assert (await TokenFile(folder, "far", "https://another.example.org/mcp").read()).tokens is None
    assert await file.remove()
    assert not await file.remove()


async def test_a_token_that_ends_in_the_middle_is_renewed_and_the_call_made_once(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    file = await log_in(server, tmp_path)
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
        tokens = (await file.read()).tokens
        assert tokens is not None
        server.stale.add(tokens.access_token)
        assert (await host.servers[0].call("secret", {}, CONTEXT)).text == "42"
        renewed = (await file.read()).tokens
    assert renewed is not None
    assert renewed.refresh_token not in (None, tokens.refresh_token)
    assert server.calls == 1


async def test_after_a_restart_a_token_is_renewed_where_it_came_from(server: Guarded, tmp_path: Path) -> None:
    file = await log_in(server, tmp_path)
    kept = await file.read()
    kept.expires_at = 1.0
    await file.write(kept)
    server.seen.clear()
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
    assert kept.tokens is not None
    assert f"Bearer {kept.tokens.access_token}" not in server.seen


async def test_many_that_renew_at_once_lose_no_login(server: Guarded, authority: Authority, tmp_path: Path) -> None:
    file = await log_in(server, tmp_path)
    kept = await file.read()
    kept.expires_at = 1.0
    await file.write(kept)
    assert kept.tokens is not None
    server.stale.add(kept.tokens.access_token)
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"far": {"url": f"{server.url}/mcp", "type": "http"}}}))
    program = [sys.executable, "-m", "tests.oauth.using", str(path), str(tmp_path)]
    both = [partial(subprocess.run, program, capture_output=True, text=True, timeout=HANGS_S) for _ in range(3)]
    ended: list[str] = []

    async def run(one: Any) -> None:
        done = await anyio.to_thread.run_sync(one)
        ended.append(done.stdout.strip() or done.stderr)

    async with anyio.create_task_group() as group:
        for one in both:
            group.start_soon(run, one)
    assert ended == ["42"] * 3
    assert len(authority.refreshes) == 1  # each is good once, so it was used once


async def test_more_scopes_are_asked_for_at_the_next_login(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    await log_in(server, tmp_path, oauth={"scope": "tenuto:run"})
    server.needed = "tenuto:run tenuto:admin"
    async with Host([config(server, tmp_path)]) as host:
        await host.settled(HANGS_S)
        assert host.states[0].failure is Failure.LOGIN_REQUIRED
        assert "wants more than was granted" in host.states[0].reason
    file = await log_in(server, tmp_path)
    tokens = (await file.read()).tokens
    assert tokens is not None
    assert set((tokens.scope or "").split()) == {"tenuto:run", "tenuto:admin"}


async def test_what_comes_back_without_the_state_that_was_sent_is_not_a_login(server: Guarded, tmp_path: Path) -> None:
    target = config(server, tmp_path).target
    assert isinstance(target, HttpTarget)
    assert target.oauth is not None
    answers: list[int] = []

    async def stray(url: str) -> None:
        back = httpx.URL(httpx.URL(url).params["redirect_uri"])
        for query in ("code=stolen", "code=stolen&state=guessed", "error=no&state="):
            async with httpx.AsyncClient() as http:
                answers.append((await http.get(f"{back}?{query}")).status_code)

    async with anyio.create_task_group() as browser:
        with pytest.raises(LoginFailed, match="nobody logged in within"):
            await login(target.url, target.oauth, showing(browser, stray), 2.0)
    assert answers == [404] * 3
    assert target.oauth.folder is not None
    assert (await TokenFile(target.oauth.folder, "far", target.url).read()).tokens is None


STRAYS = [
    b"",
    b"GET / HT",
    b"GET /favicon.ico HTTP/1.1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"GET /callback HTTP/1.1\r\n\r\n",
    b"GET /callback?state=guessed&code=c HTTP/1.1\r\n\r\n",
    b"GET /callback?" + b"a=1&" * 3000 + b" HTTP/1.1\r\n\r\n",
    b"POST /callback HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
    b"\x16\x03\x01\x02\x00" + b"\xff" * 20_000,
    b"\r\n\r\n",
]
"""What comes to a port that is open: other requests of a browser, scanners, other protocols."""


def resetting(port: int, sent: bytes) -> None:
    """Send it and leave at once, as scanners do."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(sent)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_what_strays_to_where_a_login_waits_neither_ends_nor_hinders_it(server: Guarded, tmp_path: Path) -> None:
    target = config(server, tmp_path).target
    assert isinstance(target, HttpTarget)
    assert target.oauth is not None
    assert target.oauth.folder is not None

    def come(url: str) -> None:
        port = httpx.URL(httpx.URL(url).params["redirect_uri"]).port
        assert port is not None
        with ExitStack() as held:
            for sent in STRAYS:
                resetting(port, sent)
                with socket.create_connection(("127.0.0.1", port)) as one:
                    one.sendall(sent)
            for _ in range(200):  # half-open ones, which are there as long as the login
                half = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                half.sendall(b"GET /callback?")
            consent(url)

    async def visit(url: str) -> None:
        await anyio.to_thread.run_sync(come, url)

    async with anyio.create_task_group() as browser:
        await login(target.url, target.oauth, showing(browser, visit), HANGS_S)
    assert (await TokenFile(target.oauth.folder, "far", target.url).read()).tokens is not None


async def test_a_login_whose_answer_names_another_issuer_is_refused(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    async def evil(url: str) -> None:
        sent = httpx.URL(url).params
        async with httpx.AsyncClient() as http:
            query = {"code": "stolen", "state": sent["state"], "iss": "https://evil.example.org"}
            await http.get(sent["redirect_uri"], params=query)

    target = config(server, tmp_path).target
    assert isinstance(target, HttpTarget)
    assert target.oauth is not None
    async with anyio.create_task_group() as browser:
        with pytest.raises(LoginFailed, match="iss"):
            await login(target.url, target.oauth, showing(browser, evil), HANGS_S)


@pytest.mark.parametrize(
    ("entry", "header"),
    [
        ({"bearer_command": [sys.executable, "-c", "print('of-a-command')"]}, "Bearer of-a-command"),
        (
            {"headersCommand": f"""{sys.executable} -c 'print("{{\\"Authorization\\": \\"Key k-of-a-command\\"}}")'"""},
            "Key k-of-a-command",
        ),
    ],
)
async def test_headers_come_from_a_command_that_the_file_names(
    entry: dict[str, Any], header: str, server: Guarded, tmp_path: Path
) -> None:
    server.accepted.add(header)
    async with Host([config(server, tmp_path, **entry)]) as host:
        await ready(host)
        echoed = await host.servers[0].call("echo_key", {}, CONTEXT)
    assert set(server.seen) == {header}
    assert echoed.is_error
    assert header.split()[1] not in echoed.text


async def test_a_command_that_fails_says_so_and_not_what_it_wrote(server: Guarded, tmp_path: Path) -> None:
    code = "import sys; print('the-canary'); sys.exit(3)"
    async with Host([config(server, tmp_path, bearer_command=[sys.executable, "-c", code])]) as host:
        await host.settled(HANGS_S)
    assert "exit code 3" in host.states[0].last_error
    assert "canary" not in host.states[0].last_error


@pytest.mark.parametrize(
    "oauth",
    [
        CLIENT,
        {
            "grant": "client_credentials",
            "client_id": "a",
            "issuer": "https://h",
            "client_secret": "s",
            "private_key": "k",
        },
        {"client_id": "a", "private_key": "k"},
        {"client": "a"},
        {"client_metadata_url": "http://a/b"},
        {"callback_port": 70000},
    ],
)
def test_wrong_oauth_settings_are_refused_by_name(oauth: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="oauth"):
        parse_mcp_config(json.dumps({"mcpServers": {"far": {"url": "https://h/mcp", "oauth": oauth}}}), "mcp.json")


async def test_a_private_key_that_is_none_is_told_without_it(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    oauth = {**CLIENT, "issuer": authority.url, "private_key": "the-canary"}
    async with Host([config(server, tmp_path, oauth=oauth)]) as host:
        await host.settled(HANGS_S)
        state = host.states[0]
    assert state.failure is Failure.LOGIN_REQUIRED
    assert "oauth.private_key is no private key in PEM" in state.reason
    assert "canary" not in str(state)


async def test_no_secret_of_a_login_is_shown(
    server: Guarded, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tenuto")
    entry = {"oauth": {"client_id": "known", "client_secret": "${SECRET}", "issuer": authority.url}}
    file = await log_in(server, tmp_path)
    kept = await file.read()
    assert kept.tokens is not None
    authority.refreshes.clear()
    server.stale.add(kept.tokens.access_token)
    made = config(server, tmp_path, **entry)
    async with Host([made]) as host:
        await host.settled(HANGS_S)
        assert host.states[0].failure is Failure.LOGIN_REQUIRED
    told = f"{host.states[0]} {made} {caplog.text} {kept}"
    for secret in ("the-canary", kept.tokens.access_token, kept.tokens.refresh_token or "?"):
        assert secret not in told


def test_the_command_logs_in_and_out_and_a_running_server_notices(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"far": {"url": f"{server.url}/mcp", "type": "http"}}}))
    serving = Server(tmp_path, script(tmp_path / "model.json"), ("--mcp-config", str(path)))
    options = ["--mcp-config", str(path), "--data-dir", str(serving.data_dir)]
    try:
        serving.start()
        with serving.client() as client:
            (told,) = client.get("/v1/mcp/servers").json()["data"]
            assert (told["failure"], "`tenuto mcp login far`" in told["reason"]) == ("login_required", True)
            command = [sys.executable, "-m", "tenuto", "mcp", "login", "far", "--no-browser", *options]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                url = next(line.strip() for line in process.stdout if line.strip().startswith("http"))
                consent(url)
                assert "Logged in" in process.stdout.read()
                assert process.wait(HANGS_S) == 0
            for _ in range(int(HANGS_S * 10)):
                (told,) = client.get("/v1/mcp/servers").json()["data"]
                if told["status"] == "ready":
                    break
                client.get("/health")
                anyio.run(anyio.sleep, 0.1)
            assert told["tools"] == ["far__secret", "far__other"]
        tokens = Kept.model_validate_json((serving.data_dir / "mcp-tokens" / "far.json").read_bytes()).tokens
        assert tokens is not None
        assert tokens.access_token not in serving.log + json.dumps(told)
        out = [sys.executable, "-m", "tenuto", "mcp", "logout", "far", *options]
        done = subprocess.run(out, capture_output=True, text=True, timeout=HANGS_S, check=True)
        assert done.stdout == "Forgot the login at far.\n"
    finally:
        serving.close()
