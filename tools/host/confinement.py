"""What confines the programs of servers: bubblewrap where an entry wants a sandbox, and limits that all have.

In a sandbox a program sees the system's folders, its own installation, its own home and what its entry names; it has no
network unless the entry gives it, no other processes, and ends with the server that has started it.
"""

import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from tenuto.tools.mcp_sandbox import Sandbox

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix")
_FOR_NAMES = ("/run/systemd/resolve", "/run/NetworkManager")
"""Where /etc/resolv.conf leads."""
_ROOTS = frozenset(map(Path, ("/", "/home", "/root", "/tmp", "/var", "/srv", "/mnt", "/run")))
"""No program's own installation: who keeps one right there names what it needs."""
OPEN_FILES = 4096


async def confined(command: str, args: Iterable[str], cwd: str | None, sandbox: Sandbox) -> list[str]:
    """The words that start a program in its sandbox. `command` is a path, as seen from `cwd`.

    Raises:
        OSError: there is no bubblewrap here, a folder is missing, or its home cannot be made.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise FileNotFoundError(
            "its sandbox needs bubblewrap, and there is no bwrap on PATH;"
            ' install it, or take "sandbox" out of its entry'
        )
    return await anyio.to_thread.run_sync(_words, bwrap, command, [*args], cwd, sandbox)


def home_in(sandbox: Sandbox | None, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that name a program's own folders."""
    if sandbox is None or sandbox.home is None:
        return {**env}
    return {**env, "HOME": str(sandbox.home), "TMPDIR": "/tmp"}


def limit(pid: int) -> None:
    """Bound what a program can have open, and let it leave no image of its memory. Linux only."""
    if sys.platform == "linux":
        import resource

        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


def _words(bwrap: str, named: str, args: list[str], cwd: str | None, sandbox: Sandbox) -> list[str]:
    command = Path(cwd or "", named).absolute()  # it starts elsewhere in the sandbox
    words = [bwrap, "--die-with-parent", "--unshare-all", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    if sandbox.network:
        words.append("--share-net")
    for folder in map(Path, [*_SYSTEM, *(_FOR_NAMES if sandbox.network else ())]):
        if folder.is_symlink():
            words += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.exists():
            words += ["--ro-bind", str(folder), str(folder)]
    given = dict.fromkeys((*_installation(command), *sandbox.read), "--ro-bind")
    if cwd is not None:
        given.setdefault(cwd, "--ro-bind")
    given |= dict.fromkeys(sandbox.write, "--bind")
    for shown in sorted(given):  # what holds another comes before it, or would hide it
        if not Path(shown).exists():
            raise FileNotFoundError(f"{shown!r}, which its sandbox shows, does not exist")
        words += [given[shown], shown, shown]
    if sandbox.home is not None:
        sandbox.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        words += ["--bind", str(sandbox.home), str(sandbox.home)]
    start = cwd or (None if sandbox.home is None else str(sandbox.home))
    return [*words, "--chdir", start or "/", "--", str(command), *args]


def _installation(command: Path) -> Iterable[str]:
    """Where a program lies that is none of the system's, and what its links lead to: the folder above its `bin`, or its
    own."""
    for path in {command, command.resolve()}:
        own = path.parent.parent if path.parent.name in ("bin", "Scripts") else path.parent
        folder = path if own in _ROOTS else own
        if not any(folder.is_relative_to(each) for each in _SYSTEM):
            yield str(folder)
