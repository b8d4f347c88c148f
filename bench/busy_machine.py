"""The README's first question, alone and beside busy processes: how many times longer does it take?

Every question is the first of a server of its own, so nothing is cached. With B busy processes on C cores the fair
share of the machine makes it (C + B) / C times longer; the bound for ten of them on two cores is 8. Kinds of server,
loads and repetitions are interleaved, so that what disturbs one disturbs all.

    python bench/busy_machine.py [--before CHECKOUT] [--busy 10] [--questions 20]

`--before` names a checkout of an older version to compare with (git worktree add ... COMMIT). llama-server joins where
bench/peers.sh llama-server has built it: it gets a prompt and an answer of as many tokens, of the same model. A
question that takes longer than `--limit` counts as the limit, and is marked. The busy processes end by themselves.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
PEER = Path(__file__).parent / "peers/build/bin/llama-server"
MODEL = ROOT / "pipelines/embedded/tenuto-embedded.gguf"
QUESTION = {"session_id": "demo", "messages": [{"role": "user", "content": "What is 6 * 7?"}]}
ANSWER = "6 * 7 = 42."
BOUND = 8.0
START_S = 120.0
SETTLE_S = 0.5
BURN = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


@dataclass
class Kind:
    """A kind of server, and what its first questions took, by the number of busy processes; in seconds."""

    name: str
    tree: Path | None
    """The checkout that it runs from; None: llama-server."""
    took: dict[int, list[float]] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def busy(count: int, seconds: float) -> Iterator[None]:
    """So many processes that only compute. They end with the block, and in any case after some seconds."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(ended(subprocess.Popen([sys.executable, "-c", BURN, str(seconds)], text=True)))
        if count:
            time.sleep(SETTLE_S)
        yield


@contextmanager
def tenuto(kind: Kind, folder: Path) -> Iterator[str]:
    """A server of a checkout on a fresh data folder; its address."""
    assert kind.tree is not None
    command = [sys.executable, "-P", "-m", "tenuto", "serve", "--port", "0", "--data-dir", str(folder / "data")]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    began = time.monotonic()
    with (
        (folder / "log").open("w") as log,
        ended(
            subprocess.Popen(
                [*command, "--model", "embedded:gguf"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**variables, "PYTHONPATH": str(kind.tree)},
                cwd=folder,
            )
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        if "ready on" not in line:
            sys.exit(f"{kind.name} did not start:\n{(folder / 'log').read_text()[-2000:]}")
        kind.starts.append(time.monotonic() - began)
        yield line.split()[-1]


@contextmanager
def llama_server(folder: Path) -> Iterator[str]:
    command = [str(PEER), "-m", str(MODEL), "--port", "8437", "--threads", str(cores()), "-c", "4096"]
    with (
        (folder / "log").open("w") as log,
        ended(subprocess.Popen(command, stdout=log, stderr=log, text=True)) as process,
    ):
        address, deadline = "http://127.0.0.1:8437", time.monotonic() + START_S
        while not is_ready(address):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"llama-server did not start ({process.poll()}):\n{(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield address


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.TransportError:
        return False


def ask(address: str, limit_s: float) -> float:
    """The README's first question, answered rightly; seconds."""
    began = time.perf_counter()
    try:
        answer = httpx.post(f"{address}/v1/chat/completions", json=QUESTION, timeout=limit_s).raise_for_status().json()
    except httpx.TimeoutException:
        return limit_s
    assert answer["choices"][0]["message"]["content"] == ANSWER, answer
    return time.perf_counter() - began


def ask_peer(address: str, limit_s: float, size: tuple[int, int]) -> float:
    """As many tokens of a prompt and of an answer, with nothing around them."""
    prompt, sampled = size
    body = {"prompt": [40 + at * 7 % 900 for at in range(prompt)], "n_predict": sampled, "ignore_eos": True}
    began = time.perf_counter()
    try:
        httpx.post(f"{address}/completion", json=body, timeout=limit_s).raise_for_status()
    except httpx.TimeoutException:
        return limit_s
    return time.perf_counter() - began


def size_of_the_question() -> tuple[int, int]:
    """How many tokens the question's prompt and its answers have."""
    with tempfile.TemporaryDirectory() as folder, tenuto(Kind("", ROOT), Path(folder)) as address:
        answer: dict[str, Any] = httpx.post(f"{address}/v1/chat/completions", json=QUESTION, timeout=START_S).json()
    usage = answer["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def measure(kind: Kind, count: int, limit_s: float, size: tuple[int, int]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        server = llama_server(Path(folder)) if kind.tree is None else tenuto(kind, Path(folder))
        # Started alone: what is measured is the question.
        with server as address, busy(count, limit_s + 10):
            return ask_peer(address, limit_s, size) if kind.tree is None else ask(address, limit_s)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def report(kinds: list[Kind], loads: list[int], limit_s: float) -> None:
    print(f"{cores()} cores; medians of {len(kinds[0].took[0])} first questions, in ms; x: times the quiet one")
    print(f"{'':14}{'start':>8}{'quiet':>9}" + "".join(f"{f'busy {count}':>12}{'x':>7}" for count in loads[1:]))
    for kind in kinds:
        quiet = statistics.median(kind.took[0])
        line = f"{kind.name:14}{statistics.median(kind.starts or [0]) * 1000:8.0f}{quiet * 1000:9.0f}"
        for count in loads[1:]:
            took = statistics.median(kind.took[count])
            line += f"{'>' if took >= limit_s else ''}{took * 1000:.0f}".rjust(12) + f"{took / quiet:7.1f}"
        print(line)
    fair = "".join(f"{'':12}{(cores() + count) / cores():7.1f}" for count in loads[1:])
    print(f"{'fair share':14}{'':17}{fair}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--before", type=Path, help="a checkout of an older version")
    parser.add_argument("--busy", type=int, nargs="+", default=[10])
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one question may take")
    given = parser.parse_args()
    kinds = [Kind("now", ROOT)]
    if given.before:
        kinds.append(Kind("before", given.before.resolve()))
    if PEER.exists():
        kinds.append(Kind("llama-server", None))
    else:
        print(f"no llama-server: {PEER} is not there (bench/peers.sh llama-server)")
    loads, size = [0, *given.busy], size_of_the_question()
    print(f"the question: {size[0]} tokens, {size[1]} sampled; load average at the start {os.getloadavg()[0]:.1f}")
    for _ in range(given.questions):
        for count in loads:
            for kind in kinds:
                kind.took.setdefault(count, []).append(measure(kind, count, given.limit, size))
    report(kinds, loads, given.limit)
    times = statistics.median(kinds[0].took[given.busy[-1]]) / statistics.median(kinds[0].took[0])
    sys.exit(f"{times:.1f} times is above {BOUND:g}" if times > BOUND else 0)


if __name__ == "__main__":
    main()
