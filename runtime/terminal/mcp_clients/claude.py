"""Claude Code: `.mcp.json` in a project, and a file of the user's that it writes itself while it runs."""

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError, TenutoError
from tenuto.runtime.terminal.client_files import jsonc
from tenuto.runtime.terminal.client_files.writing import keep, text_of
from tenuto.runtime.terminal.mcp_clients import mcp_servers
from tenuto.runtime.terminal.mcp_clients.client import Client, Place, Source, under

_COMMAND_S = 60.0


def _user(place: Place) -> Path:
    return place.named("CLAUDE_CONFIG_DIR", place.home) / ".claude.json"


def _of_this_project(place: Place) -> tuple[Source, ...]:
    """The servers of this folder alone, which count most."""
    return (Source(_user(place), ("projects", str(place.folder), "mcpServers"), place.folder),)


CLAUDE = Client(
    name="claude",
    title="Claude Code",
    user=_user,
    project=".mcp.json",
    entry=partial(mcp_servers.entry, reference="${%s}"),
    read=mcp_servers.read,
    way=under("mcpServers"),
    more=_of_this_project,
)


class CommandFailed(TenutoError):
    """Claude Code's own command has failed; the text is what it said."""

    code = "command_failed"


def add(path: Path, name: str, entry: dict[str, Any], there: dict[str, Any] | None) -> list[str] | None:
    """Let Claude Code write its own file; what was done, in words, or None where it is not installed.

    Raises:
        ConfigurationError: the file cannot be kept.
        CommandFailed: it did not do it.
    """
    program = shutil.which("claude")
    if program is None:
        return None
    try:
        kept = keep(path)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be kept: {exc.strerror or exc}") from exc
    if there is not None:
        _run(program, "remove", "--scope", "user", name)
    _run(program, "add-json", "--scope", "user", name, json.dumps(entry))
    after: Any = jsonc.read(text_of(path) or "")
    if after.get("mcpServers", {}).get(name) is None:
        raise CommandFailed(f"claude mcp add-json has not written {name} into {path}")
    return [f"Claude Code has added {name} to {path}.", *kept]


def _run(program: str, *words: str) -> None:
    try:
        done = subprocess.run(
            [program, "mcp", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CommandFailed(f"claude mcp {words[0]} could not be run: {type(exc).__name__}") from exc
    if done.returncode != 0:
        raise CommandFailed(f"claude mcp {words[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
