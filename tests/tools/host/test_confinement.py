"""What a server's program can reach: in a sandbox what its entry names, and nowhere more than its limits."""

import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import ConfigurationError
from tenuto.tools.host.host import Host
from tenuto.tools.host.state import Status
from tenuto.tools.mcp_config import kept_in, parse_mcp_config
from tenuto.tools.mcp_sandbox import HOMES
from tenuto.tools.spec import CallContext

SERVERS = Path(__file__).parents[1] / "servers"
CONTEXT = CallContext("alice", None, None, "call")
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


class Probe:
    def __init__(self, host: Host) -> None:
        (self.server,) = host.servers

    async def __call__(self, do: str, what: object = "") -> str:
        return (await self.server.call("probe", {"do": do, "what": str(what)}, CONTEXT)).text


@asynccontextmanager
async def started(data: Path, entry: dict[str, Any]) -> AsyncIterator[Probe]:
    own = {"command": sys.executable, "args": [str(SERVERS / "prober.py")], **entry}
    configs = kept_in(parse_mcp_config(json.dumps({"mcpServers": {"prober": own}}), "test"), data)
    async with Host(configs) as host:
        assert await host.settled(20)
        yield Probe(host)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("data", "shown", "given", "hidden")}
    for folder in found.values():
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    return found


@needs_bwrap
async def test_a_sandbox_shows_the_folders_that_its_entry_names_and_no_others(folders: dict[str, Path]) -> None:
    named = {"read": [str(SERVERS), str(folders["shown"])], "write": [str(folders["given"])]}
    async with started(folders["data"], {"sandbox": named}) as probe:
        assert await probe("read", folders["shown"] / "file") == "shown"
        assert await probe("write", folders["shown"] / "new") == "OSError"
        assert await probe("write", folders["given"] / "new") == "done"
        for hidden in (folders["hidden"] / "file", folders["data"] / "file", Path.home() / ".profile"):
            assert await probe("read", hidden) == "FileNotFoundError"
        assert await probe("write", "/etc/new") == "OSError"
        assert int(await probe("processes")) < 5
    assert (folders["given"] / "new").read_text() == "written"
    assert not (folders["shown"] / "new").exists()


@needs_bwrap
async def test_its_own_home_is_kept(folders: dict[str, Path]) -> None:
    home = folders["data"] / HOMES / "prober"
    for found in ("FileNotFoundError", "written"):
        async with started(folders["data"], {"sandbox": {"read": [str(SERVERS)]}}) as probe:
            assert await probe("home") == await probe("where") == str(home)
            assert await probe("read", home / "kept") == found
            assert await probe("write", home / "kept") == "done"
    assert home.stat().st_mode & 0o777 == 0o700


@needs_bwrap
@pytest.mark.parametrize(("network", "told"), [(False, "ConnectionRefusedError"), (True, "done")])
async def test_it_has_a_network_where_its_entry_says_so(network: bool, told: str, folders: dict[str, Path]) -> None:
    named = {"read": [str(SERVERS)], "network": network}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with started(folders["data"], {"sandbox": named}) as probe:
            assert await probe("connect", listening.getsockname()[1]) == told


@needs_bwrap
async def test_a_folder_that_is_not_there_is_named(folders: dict[str, Path]) -> None:
    async with started(folders["data"], {"sandbox": {"read": ["/no/such/folder"]}}) as probe:
        assert probe.server.state.status is Status.WAITING
        assert "'/no/such/folder', which its sandbox shows, does not exist" in probe.server.state.reason


async def test_without_bubblewrap_a_sandboxed_server_is_not_started(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folders["hidden"]))
    async with started(folders["data"], {"sandbox": True}) as probe:
        assert 'install it, or take "sandbox" out of its entry' in probe.server.state.reason


@pytest.mark.skipif(sys.platform != "linux", reason="limits are set on Linux")
async def test_every_program_has_its_limits(folders: dict[str, Path]) -> None:
    async with started(folders["data"], {}) as probe:
        core, files = map(int, (await probe("limits")).split())
        assert core == 0
        assert 0 < files <= 4096


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "x", "sandbox": {"read": ["here"]}}, "the folder 'here' must begin with / or ~"),
        ({"command": "x", "sandbox": {"folders": []}}, "sandbox"),
        ({"url": "http://localhost/mcp", "sandbox": True}, "is for a 'command'"),
    ],
)
def test_what_is_no_sandbox_is_refused(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_mcp_config(json.dumps({"mcpServers": {"prober": entry}}), "test")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
async def test_a_command_that_only_the_login_shell_finds_is_found(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A desktop or a service starts programs with a shorter PATH than a person's terminal has."""
    programs = folders["hidden"]
    (programs / "only-at-login").symlink_to(sys.executable)
    (folders["shown"] / ".bash_profile").write_text(f'echo "a greeting"; export PATH="{programs}:$PATH"\n')
    monkeypatch.setenv("HOME", str(folders["shown"]))
    monkeypatch.setenv("SHELL", str(shutil.which("bash")))
    started_so = {"command": "only-at-login", "env": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
    async with started(folders["data"], started_so) as probe:
        assert await probe("where") == str(Path.cwd())
