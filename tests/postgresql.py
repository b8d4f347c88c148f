"""A PostgreSQL server for tests, reached by a socket in its folder: that of the wheel `pgserver`, or the system's."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.patience import HANGS_S

START_S = HANGS_S
_NOBODY = "nobody"
_SOCKET = ".s.PGSQL.5432"


def missing() -> str | None:
    """Why there can be no server here; None where there can."""
    if sys.platform == "win32":
        return "a PostgreSQL of its own is started on Unix only"
    if find_spec("psycopg") is None:
        return "psycopg is not installed"
    return None if _binaries() else "there is no PostgreSQL: neither the wheel pgserver nor one of the system's"


def url_at(folder: Path) -> str:
    """The URL of the database whose socket is in a folder."""
    return f"postgresql+psycopg://tenuto@/postgres?host={folder}"


def socket_in(folder: Path) -> Path:
    """The socket of the server of a folder."""
    return folder / _SOCKET


@contextmanager
def running() -> Iterator[Path]:
    """A server with an empty database, and the folder of its socket."""
    binaries = _binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # the path of a socket must be short
    user = _NOBODY if os.geteuid() == 0 else None  # it does not run as root
    if user is not None:
        shutil.chown(folder, user)
    data = str(folder / "data")
    try:
        initdb = [str(binaries / "initdb"), "-U", "tenuto", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", data]
        subprocess.run(initdb, user=user, check=True, capture_output=True, cwd=folder)
        options = ["-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        command = [str(binaries / "postgres"), "-D", data, *options]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(command, user=user, stdout=log, stderr=log, cwd=folder)
        try:
            _wait_for(folder, server)
            yield folder
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(START_S)
    finally:
        shutil.rmtree(folder)


def _wait_for(folder: Path, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while "ready to accept connections" not in (log := (folder / "log").read_text()):
        assert server.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.02)


def _binaries() -> Path | None:
    wheel = find_spec("pgserver")
    places = [Path(place, "pginstall/bin") for place in (wheel and wheel.submodule_search_locations) or ()]
    on_path = shutil.which("initdb")
    places += [] if on_path is None else [Path(on_path).parent]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "postgres").exists() and (place / "initdb").exists()), None)
