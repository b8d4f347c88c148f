"""Where a client works: a home of its own, a repository with a file, and a server with a scripted model."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.runtime.terminal.launch.command import AGENTS
from tests.clients.wire import Exchange, Wire, listening
from tests.e2e.server import Server, script
from tests.third_party.installed import programs_from_npm

RUN_S = 240
CONTEXT = 200_000
BYTES_A_TOKEN = 4.25
"""What a model with a vocabulary of 100,000 tokens or more makes of what these clients send, at the least."""


@dataclass(frozen=True)
class Place:
    """Where one client works, started as `tenuto launch` starts it."""

    name: str
    folder: Path
    wire: Wire
    programs: Sequence[Path]

    @property
    def file(self) -> Path:
        """The file in its repository."""
        return notes(self.folder)

    def launch(self, *arguments: str, typed: str | None = None) -> tuple[str, list[Exchange]]:
        """Run the client to its end: what it printed, and what it and the server said to each other."""
        return self._heard(*self._tenuto("--", *arguments), typed=typed)

    def by_hand(self, *arguments: str) -> tuple[str, list[Exchange]]:
        """Run it by the command that `--print` shows, as a shell reads it."""
        return self._heard("sh", "-c", self._run(*self._tenuto("--print", "--", *arguments)))

    def installed(self, *command: str) -> tuple[str, list[Exchange]]:
        """Run it by its own command, once its own configuration says where the server is."""
        self._run(*self._tenuto("--install"))
        return self._heard(*command)

    def with_mcp(self, *arguments: str) -> str:
        """Run it with the server as one of its MCP servers too: all that it sent to the model."""
        _, said = self._heard(*self._tenuto("--mcp", "--", *arguments))
        return json.dumps([one.body for one in said])

    def _tenuto(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "tenuto", "launch", self.name, "--url", self.wire.url, *options]

    def _heard(self, *command: str, typed: str | None = None) -> tuple[str, list[Exchange]]:
        printed = self._run(*command, typed=typed)
        said = self.wire.take()
        assert [one.status for one in said] == [200] * len(said), [one.answer[-2000:] for one in said]
        return printed, said

    def _run(self, *command: str, typed: str | None = None) -> str:
        kept = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "LANG", "TMPDIR")}
        done = subprocess.run(
            command,
            env={**kept, "PATH": path_of(self.programs), "HOME": str(self.folder), "OPENCODE_DISABLE_AUTOUPDATE": "1"},
            cwd=self.file.parent,
            stdin=subprocess.DEVNULL if typed is None else None,
            input=typed,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout


def path_of(programs: Sequence[Path]) -> str:
    """The PATH of a client whose programs are in these folders."""
    return os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"])


def notes(folder: Path) -> Path:
    """The file that a client in this folder works on."""
    return folder / "repository" / "notes.txt"


@contextmanager
def working(name: str, package: str, version: str, folder: Path, rules: Sequence[dict[str, Any]]) -> Iterator[Place]:
    """A client's place, and a server whose model follows the rules."""
    programs = programs_from_npm(package, version)
    file = notes(folder)
    file.parent.mkdir()
    file.write_text("one\n")
    git = ["git", "-C", str(file.parent), "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "First light"]):
        subprocess.run([*git, *words], check=True)
    server = Server(folder, script(folder / "model.json", rules, cells=CONTEXT, batch_tokens=8192)).start()
    try:
        with listening(server.url) as wire:
            yield Place(name, folder, wire, programs)
    finally:
        server.close()


def begins_as_told(place: Place, first: Exchange) -> None:
    """A client's first request is no longer than `tenuto launch` takes it to be. A token of the script's is a byte."""
    assert first.rounds[0]["prompt_tokens"] / BYTES_A_TOKEN <= AGENTS[place.name].first_request


def goes_on(said: Sequence[Exchange]) -> None:
    """All is one session, and each answer but the first has computed exactly what was new."""
    assert len({one.session for one in said}) == 1
    computed_is_new(said[1:])
    assert all(one.rounds[0]["cached_tokens"] > 10_000 for one in said[1:])


def computed_is_new(said: Sequence[Exchange]) -> None:
    """Each answer has computed exactly what was new in it, by the ledger."""
    for one in said:
        assert [each["computed_tokens"] for each in one.rounds] == [each["new_tokens"] for each in one.rounds]
        assert one.rounds[0]["cached_tokens"] > 0
