"""The servers that are measured, each ended with its block: Tenuto of this or another checkout, and llama-server."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "bench/peers/build/bin"
EMBEDDED = ROOT / "pipelines/embedded/tenuto-embedded.gguf"
READY = "tenuto ready on "
START_S = 300.0
HOST_CACHE = 1 << 30
"""Bytes of cache in host memory, the same for each server."""


@dataclass(frozen=True)
class Running:
    """A server that answers at an address."""

    name: str
    url: str
    process: int

    def tree(self) -> list[int]:
        """Its process, and those that it has started."""
        found = [self.process]
        for process in found:
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                found += map(int, children.read_text().split())
        return found


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_peer(program: str = "llama-server") -> bool:
    """Whether a program of llama.cpp is built; where not, that is said."""
    if (PEERS / program).exists():
        return True
    print(f"without {program}: it is not built (bench/peers.sh {program})", flush=True)
    return False


@contextmanager
def process(command: list[str], log: Path, **more: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that is killed with the block. It does not see the settings of Tenuto that are set here."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    with log.open("a") as errors:
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=log.parent, env={**variables, **more}
        )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)


@contextmanager
def tenuto(
    model: str | Path, *flags: str, folder: Path | None = None, checkout: Path = ROOT, name: str = "tenuto"
) -> Iterator[Running]:
    """`tenuto serve` of a checkout on a free port, with its data in `folder`/data; without one, in a fresh folder."""
    with _folder(folder) as place:
        command = [sys.executable, "-P", "-m", "tenuto", "serve", "--port", "0", "--data-dir", str(place / "data")]
        command += ["--model", str(model), *flags]
        log = place / "log"
        with process(command, log, PYTHONPATH=str(checkout)) as started:
            assert started.stdout is not None
            line = started.stdout.readline()
            if not line.startswith(READY):
                raise SystemExit(f"{name} did not start:\n{log.read_text()[-2000:]}")
            yield Running(name, line.removeprefix(READY).strip(), started.pid)


@contextmanager
def llama_server(
    model: str | Path, *flags: str, slots: int, cells: int, threads: int | None = None, name: str = "llama-server"
) -> Iterator[Running]:
    """llama-server on a free port: so many slots of so many cells each, and as much host memory as Tenuto's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(PEERS / "llama-server"),
        "-m",
        str(Path(model).resolve()),
        "--port",
        str(port),
        "--jinja",
        "--no-webui",
    ]
    command += ["--threads", str(threads or cores()), "-c", str(slots * cells), "-np", str(slots), "--log-disable"]
    command += ["--cache-ram", str(HOST_CACHE >> 20), *flags]
    with _folder(None) as place, process(command, log := place / "log") as started:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
        while not _is_healthy(url):
            if started.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start ({started.poll()}):\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield Running(name, url, started.pid)


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def figures(url: str, key: str = "") -> dict[str, float]:
    """Every series of a server's /metrics."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return series(httpx.get(f"{url}/metrics", headers=headers, timeout=60).raise_for_status().text)


def series(text: str) -> dict[str, float]:
    """The series of an exposition, by their names and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def total(figures: dict[str, float], name: str, *labels: str) -> float:
    """The sum of a metric's series that have all these labels."""
    found = [key for key in figures if key.partition("{")[0] == name and all(label in key for label in labels)]
    return sum(figures[key] for key in found)
