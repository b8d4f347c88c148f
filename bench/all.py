"""All measurements, one after the other; then the table of R1 to R11: goal, figure, reached or not.

Each is a process of its own with a bound on its time, and leaves its result in bench/out/results. What is there already
of the same commit and the same length is not measured again, so a run that was broken off goes on where it was;
`--again` measures all. `--only R3 R6` measures some, and `--table` prints what is there.

    python bench/all.py [--quick] [--only R1 ...] [--again] [--table]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.results import RESULTS, commit

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """A measurement, and how many minutes it may take, short and whole."""

    name: str
    script: str
    quick: float
    whole: float


JOBS = [
    Job("R1", "resume_cost", 1.5, 10),
    Job("R2", "resume_latency", 4, 30),
    Job("R3", "agent_pauses", 5, 60),
    Job("R4", "restart_resume", 2, 20),
    Job("R5", "bystanders", 2, 6),
    Job("R6", "engine_speed", 3, 20),
    Job("R6", "chat_speed", 3, 40),
    Job("R7", "cancel_cost", 1, 2),
    Job("R8", "cache_budget", 1.5, 4),
    Job("R9", "event_loop", 1.5, 6),
    Job("R10", "busy_machine", 5, 40),
    Job("R11", "engine_ends", 1.5, 4),
    Job("burst", "burst", 2, 10),
    Job("soak", "soak", 2.5, 24),
]


def kept(job: Job) -> dict[str, Any] | None:
    """What it has found, if it has."""
    path = RESULTS / f"{job.script}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def run(job: Job, *, is_quick: bool) -> None:
    """Measure, within its time. What it says goes to stdout."""
    minutes = job.quick if is_quick else job.whole
    command = [sys.executable, str(HERE / f"{job.script}.py"), *(["--quick"] if is_quick else [])]
    print(f"== {job.name}: {job.script}, at most {minutes:g} minutes", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(60 * minutes)
        print(
            f"   {time.monotonic() - began:.0f} s" + ("" if code in (0, 1) else f", and it failed: {code}"), flush=True
        )
    except subprocess.TimeoutExpired:
        print(f"   it was ended after {minutes:g} minutes", flush=True)
    finally:
        process.send_signal(signal.SIGINT)  # it leaves its blocks by the exception, and its servers end with them
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever of it is left
        process.wait()


def table(jobs: list[Job]) -> int:
    """Every figure that has a goal; the exit code: 1 where one is missed or there is none."""
    is_right = True
    print(f"{'':6} {'':68} {'goal':>8} {'figure':>9}")
    for job in jobs:
        found = kept(job)
        if found is None:
            print(f"{job.name:6} {job.script}: not measured")
            is_right = False
            continue
        for figure in found["figures"]:
            if figure["reached"] is None:
                continue
            bound = f"<= {figure['at_most']:g}" if figure["at_most"] is not None else f">= {figure['at_least']:g}"
            said = "reached" if figure["reached"] else "MISSED"
            print(f"{job.name:6} {figure['what']:68} {bound:>8} {figure['value']:>9.3g} {said}")
            is_right = is_right and figure["reached"]
    return 0 if is_right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=sorted({job.name for job in JOBS}))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    jobs = [job for job in JOBS if not given.only or job.name in given.only]
    for job in jobs if not given.table else []:
        found = kept(job)
        is_there = found is not None and found["commit"] == commit() and found["is_quick"] == given.quick
        if is_there and not given.again:
            print(f"== {job.name}: {job.script} is there", flush=True)
        else:
            run(job, is_quick=given.quick)
    return table(jobs)


if __name__ == "__main__":
    sys.exit(main())
