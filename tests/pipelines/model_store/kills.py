"""Kills processes at each of their changes of the disk, and sees what they leave. Run by test_kill_nine.py.

`python -m tests.pipelines.model_store.kills NAME FOLDER` plays one of OPERATIONS: it forks a child for each call that
changes the disk, which ends by SIGKILL just before that call; the last child comes to its end.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.errors import TenutoError
from tenuto.pipelines.model_store import ModelStore, pull
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.pipelines.model_store.verify import verify

CALLS = ("fsync", "replace", "rename", "link", "unlink", "rmdir", "mkdir", "truncate")
ONE, TWO = b"GGUF one", b"GGUF two"
_MOST = 500


def killed_at(number: int) -> None:
    """From now on, end this process just before the call of this number."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*arguments, **named)

        return counting

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def is_killed(number: int, operation: Callable[[], object]) -> bool:
    """Whether the operation has so many calls that it was killed before it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            killed_at(number)
            operation()
        except BaseException as error:
            sys.stderr.write(f"at call {number}: {error!r}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the operation failed"
    return False


def stored(store: ModelStore) -> bytes | None:
    """What the model's file holds, if there is one; each of its versions is whole."""
    for version in store.versions("tiny") if store.find("tiny") else ():
        assert verify(version) == [], f"{version.reference} is not whole"
    found = store.find("tiny")
    return None if found is None else found.path.read_bytes()


def put(store: ModelStore, content: bytes) -> None:
    file = store.root.parent / "tiny.gguf"
    file.unlink(missing_ok=True)
    file.write_bytes(content)
    pull(store, LocalModel(file, links=False), "tiny")


@dataclass(frozen=True)
class Operation:
    """What is there before, what is done, what may be there after a kill, and what is there at the end."""

    before: tuple[bytes, ...]
    act: Callable[[ModelStore], object]
    between: frozenset[bytes | None]
    after: bytes | None


def first_id(store: ModelStore) -> str:
    return store.versions("tiny")[0].version.id


def remove_first(store: ModelStore) -> None:
    if len(store.versions("tiny")) == 2:
        store.remove(f"tiny@{first_id(store)}")


def remove_all(store: ModelStore) -> None:
    if store.find("tiny"):
        store.remove("tiny")


def switch_back(store: ModelStore) -> None:
    store.rollback("tiny", first_id(store))


OPERATIONS = {
    "first pull": Operation((), lambda store: put(store, ONE), frozenset({None, ONE}), ONE),
    "pull": Operation((ONE,), lambda store: put(store, TWO), frozenset({ONE, TWO}), TWO),
    "pull of an earlier version": Operation((ONE, TWO), lambda store: put(store, ONE), frozenset({ONE, TWO}), ONE),
    "rollback": Operation((ONE, TWO), switch_back, frozenset({ONE, TWO}), ONE),
    "removal of a version": Operation((ONE, TWO), remove_first, frozenset({TWO}), TWO),
    "removal": Operation((ONE, TWO), remove_all, frozenset({TWO, None}), None),
}


def play(operation: Operation, folder: Path) -> int:
    """Gives how often it was killed."""
    original = ModelStore(folder / "original" / "models")
    original.root.mkdir(parents=True)
    for content in operation.before:
        put(original, content)
    for number in range(_MOST):
        place = folder / str(number)
        shutil.copytree(folder / "original", place)
        store = ModelStore(place / "models")
        was_killed = is_killed(number, lambda store=store: operation.act(store))  # type: ignore[misc]
        there = stored(store)
        assert there in (operation.between if was_killed else {operation.after}), f"after call {number}: {there!r}"
        operation.act(store)
        assert stored(store) == operation.after, f"done again after call {number}"
        with store.changing("another"):  # whoever changes something next frees what was being taken away
            left = [path for path in place.rglob("*") if "leaving" in path.parts and path.is_file()]
        assert left == [], f"left after call {number}: {left}"
        shutil.rmtree(place)
        if not was_killed:
            return number
    raise AssertionError("it never ends")


if __name__ == "__main__":
    try:
        print(play(OPERATIONS[sys.argv[1]], Path(sys.argv[2])))
    except TenutoError as error:
        sys.exit(repr(error))
