"""What a measurement has found: figures with their goals, and the rows behind them, as JSON in bench/out/results."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.servers import ROOT, cores

RESULTS = ROOT / "bench/out/results"


@dataclass(frozen=True)
class Figure:
    """One number that there is a goal for; without one, it is only told."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether it is where it should be; None where there is no goal."""
        if self.at_most is None and self.at_least is None:
            return None
        above = self.at_most is not None and self.value > self.at_most
        return not above and not (self.at_least is not None and self.value < self.at_least)

    @property
    def goal(self) -> str:
        """In words."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "" if self.at_least is None else f">= {self.at_least:g}"


@dataclass
class Measure:
    """One measurement: `name` is the number that it belongs to, as R1, or a word where it belongs to none."""

    name: str
    title: str
    is_quick: bool = False
    figures: list[Figure] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    load: list[float] = field(default_factory=lambda: [round(os.getloadavg()[0], 2)])

    def figure(
        self, what: str, value: float, unit: str = "", *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """Take a number with its goal, `at_most` or `at_least`."""
        figure = Figure(what, value, unit, at_most=at_most, at_least=at_least)
        self.figures.append(figure)
        verdict = {None: "", True: f"  {figure.goal}: reached", False: f"  {figure.goal}: missed"}[figure.reached]
        print(f"{self.name}: {what}: {value:.4g}{' ' if unit else ''}{unit}{verdict}", flush=True)

    def row(self, **values: Any) -> None:
        """Take what lies behind the figures."""
        self.rows.append(values)
        told = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items())
        print("  " + ", ".join(told), flush=True)

    def note(self, text: str) -> None:
        """Say something that belongs to the figures, as that a peer was left out."""
        self.notes.append(text)
        print(f"  {text}", flush=True)

    def end(self) -> int:
        """Keep it all; the exit code: 1 where a goal is missed."""
        self.load.append(round(os.getloadavg()[0], 2))
        RESULTS.mkdir(parents=True, exist_ok=True)
        kept = asdict(self)
        for figure, told in zip(self.figures, kept["figures"], strict=True):
            told |= {"reached": figure.reached}
        kept |= {"seconds": round(time.time() - self.began, 1), "commit": commit(), "machine": machine()}
        kept |= {"command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])}
        path = RESULTS / f"{Path(sys.argv[0]).stem}.json"
        path.write_text(json.dumps(kept, indent=1) + "\n")
        return int(any(figure.reached is False for figure in self.figures))


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what each measurement takes."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller cases")
    return parser


def commit() -> str:
    """Of this checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """In words."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{cores()} cores, {(models or [platform.processor()])[0]}, Python {platform.python_version()}"
