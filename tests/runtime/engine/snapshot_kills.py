"""Kills processes that write snapshots, and sees what they leave. Run by test_snapshot_kills.py.

`python -m tests.runtime.engine.snapshot_kills FOLDER` kills a hundred, one after the other in the same folder, at any
moment; then one before each call by which a snapshot is replaced. Each was forked, so that none has to start anew.
"""

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenuto.runtime.engine.snapshots import SnapshotStore
from tests.runtime.engine.snapshot_rig import ROOMY, House, files, snapshot_of, tokens_of

KILLS, WHILE_WRITING = 100, 10
"""How many at least, and how many of these in the middle of a write."""
SEQUENCES = [f"s/{number}" for number in range(4)]
NBYTES = 3 << 20
SNAPSHOTS = {
    (sequence, count): snapshot_of(tokens_of(sequence, count), NBYTES) for sequence in SEQUENCES for count in (20, 30)
}


def write_on(root: Path, told: int) -> None:
    """Keep one snapshot after the other, by threads, and say each time that one was written."""
    store = SnapshotStore(root, "model 1", ROOMY)
    kept = 0
    while True:
        for (sequence, count), snapshot in SNAPSHOTS.items():
            store.keep(sequence, "alice", tokens_of(sequence, count), snapshot)
            if sequence == SEQUENCES[0]:
                store.drop(SEQUENCES[1]).result()
            if store.figures().kept > kept:
                kept = store.figures().kept
                os.write(told, b".")


def killed(act: Callable[[int], None], moment: Callable[[int, int], None]) -> bool:
    """Whether a child that does this was killed: by itself, or by `moment`, which can read what it tells."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            act(writer)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    os.close(writer)
    try:
        moment(reader, pid)
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(reader)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed"
    return os.WIFSIGNALED(status)


def check(root: Path) -> tuple[int, int]:
    """All that a later process finds is whole. Gives how many were being written, and how many it found."""
    partial = sum(path.suffix == ".partial" for path in files(root))
    house = House(root)
    house.run()
    assert house.store.figures().ignored == {}, house.store.figures()
    assert not any(path.suffix == ".partial" for path in files(root))
    found = sum(house.holds(sequence) for sequence in SEQUENCES)
    assert found == len(files(root)) == house.store.figures().files
    return partial, found


def at_any_moment(root: Path) -> Counter[str]:
    chance = random.Random(18)
    seen: Counter[str] = Counter()
    # On a busy machine few are killed while they write, and so more are killed.
    while seen["kills"] < KILLS or (seen["partial"] <= WHILE_WRITING and seen["kills"] < 10 * KILLS):

        def moment(reader: int, pid: int) -> None:
            for _ in range(chance.randrange(1, 8)):
                assert os.read(reader, 1) == b"."
            for _ in range(chance.randrange(60_000)):
                pass
            os.kill(pid, signal.SIGKILL)

        assert killed(lambda told: write_on(root, told), moment)
        partial, found = check(root)
        seen["kills"] += 1
        seen["partial"] += partial
        seen["found"] += found
    return seen


def at_each_call(root: Path) -> int:
    """A snapshot is replaced: the old one or the new one is there."""
    for number in range(100):
        place = root / str(number)

        def replace(_: int, number: int = number, place: Path = place) -> None:
            house = House(place)
            house.keep(SEQUENCES[0], tokens=20, nbytes=NBYTES)
            left = number

            def counted(call: Callable[..., Any]) -> Callable[..., Any]:
                def counting(*arguments: Any, **named: Any) -> Any:
                    nonlocal left
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    return call(*arguments, **named)

                return counting

            for name in ("open", "write", "replace", "unlink"):
                setattr(os, name, counted(getattr(os, name)))
            house.keep(SEQUENCES[0], tokens=30, nbytes=NBYTES)
            os._exit(0)

        was_killed = killed(replace, lambda _reader, _pid: None)
        assert check(place)[1] == 1, f"before call {number}"
        if not was_killed:
            return number
    raise AssertionError("it never ends")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(dict(at_any_moment(folder / "any")), at_each_call(folder / "each"))
