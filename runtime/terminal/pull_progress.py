"""How far a pull or other work is: a bar for a person, or for a program lines of JSON in the form of Ollama's API."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import click

from tenuto.errors import TenutoError
from tenuto.pipelines.model_store import Progress

_EVERY_S = 0.2
_VERBS = {"looking": "asking the source", "fetching": "fetching", "checking": "checking", "storing": "storing"}


@contextmanager
def shown_progress() -> "Iterator[Bars | Lines]":
    """A bar for each file on a terminal; elsewhere a line on stderr for each file that is fetched."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Display(*columns, console=Console(stderr=True)) as display:
        yield Bars(display)


@contextmanager
def shown_steps(what: str) -> Iterator[Callable[[int, int], None]]:
    """One bar for the steps of some work on a terminal; elsewhere a line when it begins."""
    if not sys.stderr.isatty():
        click.echo(what, err=True)
        yield _silent
        return
    from rich.console import Console
    from rich.progress import Progress as Display

    with Display(console=Console(stderr=True)) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)


def _silent(done: int, total: int) -> None:
    del done, total


class Bars:
    """A bar for what is done to each file."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._tasks: dict[tuple[str, str], Any] = {}

    def __call__(self, progress: Progress) -> None:
        """Move a bar."""
        if progress.file is None:
            return
        key = (progress.phase, progress.file.path)
        if key not in self._tasks:
            from rich.markup import escape

            told = escape(f"{_VERBS[progress.phase]} {progress.file.path}")
            self._tasks[key] = self._display.add_task(told, total=progress.total)
        self._display.update(self._tasks[key], completed=progress.done)


class Lines:
    """A line for each file, where nobody watches."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Say what has begun."""
        file = progress.file
        if file is not None and progress.phase == "fetching" and file.path != self._last:
            self._last = file.path
            click.echo(f"fetching {file.path}, {file.size / 1e6:.1f} MB", err=True)


class JsonLines:
    """Lines of JSON on stdout: `status`, and of a file `digest`, `total` and `completed`; an error is one too."""

    def __init__(self) -> None:
        self._last: tuple[str, str | None] | None = None
        self._told, self._done = 0.0, 0

    def __enter__(self) -> "JsonLines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, TenutoError):
            self._print({"error": str(error), "code": error.code})

    def __call__(self, progress: Progress) -> None:
        """Tell it a few times a second, and each hundredth, beginning and end."""
        now, file = time.monotonic(), progress.file
        key = (progress.phase, file.path if file else None)
        is_little = 100 * (progress.done - self._done) < progress.total and progress.done < progress.total
        if key == self._last and is_little and now - self._told < _EVERY_S:
            return
        self._last, self._told, self._done = key, now, progress.done
        self._print(_told(progress))

    def success(self, model: dict[str, Any]) -> None:
        """The last line."""
        self._print({"status": "success", "model": model})

    def _print(self, line: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def _told(progress: Progress) -> dict[str, Any]:
    """One step, in the words of Ollama's own server where it has some."""
    file = progress.file
    match progress.phase, file:
        case ("fetching" | "checking", file) if file is not None:
            digest = f"sha256:{file.sha256}" if file.sha256 else file.path
            verb = "pulling" if progress.phase == "fetching" else "verifying"
            name = file.sha256[:12] if file.sha256 else file.path
            told = {"status": f"{verb} {name}", "digest": digest, "total": progress.total}
            return told | ({"completed": progress.done} if progress.done else {})
        case ("storing", _):
            return {"status": "writing manifest"}
        case _:
            return {"status": "pulling manifest"}
