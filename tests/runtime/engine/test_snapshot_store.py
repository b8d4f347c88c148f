"""Snapshots on disk: kept, found, read back, dropped, and never used where they are not what they should be."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ConfigurationError, ShuttingDown
from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.snapshots import Flaw, Found, Limits, Refusal, SnapshotStore, expire, forget
from tenuto.runtime.engine.snapshots.ownership import FolderLock
from tenuto.sessions.tokens import Tokens
from tests.patience import HANGS_S
from tests.runtime.engine.snapshot_rig import ROOMY, House, files, is_whole, snapshot_of, tokens_of

HEADER_BYTES = 500  # more than what a small file has beside its cache
posix = pytest.mark.skipif(os.name != "posix", reason="no such files there")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def house(root: Path) -> House:
    return House(root)


def some(tokens: Tokens) -> Tokens:
    return Tokens([*tokens[:12], 999_999, *tokens[13:]])


def test_a_snapshot_is_found_and_read_in_the_next_process(house: House) -> None:
    tokens = house.keep("a/b", tokens=20, nbytes=100)
    for each in (house, house.again()):
        assert each.store.find("a/b", "alice", some(tokens)) == Found("a/b", held=20, common=12, nbytes=100)
        assert each.store.find("a", "alice", tokens) is None
        restored = each.read("a/b")
        assert restored is not None
        assert restored.tokens == tokens
        assert is_whole(restored)
        assert each.read("a") is None
        assert (each.store.figures().restored, each.store.figures().restored_bytes) == (1, 100)
        assert each.store.figures().ignored == {}


def test_keeping_returns_before_anything_is_written(house: House, root: Path) -> None:
    tokens = tokens_of("s")
    assert house.store.keep("s", "alice", tokens, snapshot_of(tokens))
    assert files(root) == []
    assert house.store.find("s", "alice", tokens) is None
    assert house.store.figures().waiting == 1
    house.run()
    assert len(files(root)) == house.store.figures().files == 1
    assert house.store.figures().nbytes == house.store.figures().kept_bytes == files(root)[0].stat().st_size
    assert (house.store.figures().waiting, house.store.figures().waiting_bytes) == (0, 0)


def test_a_later_snapshot_takes_the_place_of_one_that_waits_and_of_the_file(house: House, root: Path) -> None:
    for count in (10, 15):
        tokens = tokens_of("s", count)
        assert house.store.keep("s", "alice", tokens, snapshot_of(tokens))
    house.run()
    assert house.store.figures().kept == 1
    house.keep("s", tokens=30)
    assert len(files(root)) == house.store.figures().files == 1
    restored = house.again().read("s")
    assert restored is not None
    assert len(restored.tokens) == 30


def test_what_waits_has_a_bound_and_a_share_for_each_principal(root: Path) -> None:
    house = House(root, replace(ROOMY, queue_bytes=1000))

    def keep(sequence: str, principal: str, nbytes: int) -> bool:
        tokens = tokens_of(sequence, 1)
        return house.store.keep(sequence, principal, tokens, snapshot_of(tokens, nbytes))

    assert not keep("huge", "alice", 1000)
    assert all(keep(f"a{number}", "alice", 196) for number in range(5))
    assert house.store.figures().waiting_bytes == 1000
    assert not keep("a1", "alice", 1000), "the one that waits stays"
    assert keep("b", "bob", 396)
    assert house.store.figures().refused == {Refusal.QUEUE: 4}
    house.run()
    assert [house.holds(one, "alice") for one in ("a0", "a1", "a2", "a3", "a4")].count(True) == 3
    assert house.holds("b", "bob")


def test_the_budget_holds_at_every_moment_and_who_holds_most_gives_way(root: Path, monkeypatch: Any) -> None:
    limits = replace(ROOMY, budget_bytes=10 * (10_000 + HEADER_BYTES))
    house = House(root, limits)
    write = os.write

    def watched(descriptor: int, data: memoryview) -> int:
        assert sum(path.stat().st_size for path in files(root)) + len(data) <= limits.budget_bytes
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", watched)
    for number in range(20):
        house.keep(f"a{number}", nbytes=10_000)
    assert not house.holds("a9")
    assert house.holds("a10")  # and was used last, from now on
    for number in range(5):
        house.keep(f"b{number}", nbytes=10_000, principal="bob")
    house.keep("a19", nbytes=20_000)  # beside the one that it replaces there is no room
    assert house.holds("a10")
    assert all(house.holds(f"b{number}", "bob") for number in range(5))
    assert house.holds("a19")
    assert len(files(root)) == house.store.figures().files == 9
    house.drop("a19")
    for number in range(2):
        house.keep(f"c{number}", nbytes=10_000)
    assert len(files(root)) == house.store.figures().files == 10, "what went has left its room"
    house.drop("c0")
    house.drop("c1")
    house.keep("a19")
    assert house.store.figures().refused == {}
    tokens = tokens_of("huge")
    assert house.store.keep("huge", "alice", tokens, snapshot_of(tokens, limits.budget_bytes))
    house.run()
    assert house.store.figures().refused == {Refusal.BUDGET: 1}
    assert house.holds("a19"), "what can find no room takes nobody's"


def test_a_smaller_budget_after_a_restart_holds_at_once(house: House, root: Path) -> None:
    for number in range(10):
        house.clock.now += 1
        house.keep(f"s{number}", nbytes=10_000)
        os.utime(max(files(root), key=lambda path: path.stat().st_mtime_ns), (house.clock.now,) * 2)
    again = house.again(limits=replace(ROOMY, budget_bytes=3 * (10_000 + HEADER_BYTES)))
    assert [again.holds(f"s{number}") for number in range(10)] == [False] * 7 + [True] * 3
    assert len(files(root)) == 3


def test_old_ones_go_while_it_runs_and_at_the_start(root: Path) -> None:
    house = House(root, replace(ROOMY, keep_s=1000))
    house.keep("old")
    house.clock.now += 600
    house.keep("new")
    house.clock.now += 600
    house.run()
    assert (house.holds("old"), house.holds("new")) == (False, True)
    assert house.store.figures().expired == len(files(root)) == 1
    house.clock.now += 600
    again = house.again()
    assert files(root) == []
    assert again.store.figures().expired == 1


def test_a_clock_that_was_set_back_keeps_nothing_for_ever(root: Path) -> None:
    house = House(root, replace(ROOMY, keep_s=1000))
    house.keep("s")
    house.clock.now -= 1e6
    again = house.again()
    assert again.holds("s")
    again.clock.now += 1001
    again.run()
    assert files(root) == []


def cut(path: Path, house: House) -> None:
    os.truncate(path, path.stat().st_size - 1)


def alter(path: Path, house: House) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def be_of_another_model(path: Path, house: House) -> None:
    other = House(house.root.parent / "other", fingerprint="model 2")
    other.keep("s")
    shutil.copy(files(other.root)[0], path)


def be_of_another_sequence(path: Path, house: House) -> None:
    other = House(house.root.parent / "other")
    other.keep("t")
    shutil.copy(files(other.root)[0], path)


def be_of_somebody_else(path: Path, house: House) -> None:
    other = House(house.root.parent / "other")
    other.keep("s", principal="mallory")
    shutil.copy(files(other.root)[0], path)


def be_something_else(path: Path, house: House) -> None:
    path.write_bytes(b"nothing of ours" * 100)


def be_a_link(path: Path, house: House) -> None:
    path.rename(house.root.parent / "elsewhere")
    path.symlink_to(house.root.parent / "elsewhere")


def be_a_pipe(path: Path, house: House) -> None:
    path.unlink()
    os.mkfifo(path)


def go(path: Path, house: House) -> None:
    path.unlink()


Change = Callable[[Path, House], None]
CHANGES: list[tuple[Change, Flaw | None]] = [
    (cut, Flaw.CUT),
    (alter, Flaw.ALTERED),
    (be_of_another_model, Flaw.MODEL),
    (be_of_another_sequence, Flaw.SEQUENCE),
    (be_of_somebody_else, Flaw.PRINCIPAL),
    (be_something_else, Flaw.FORM),
    (be_a_link, Flaw.UNREADABLE),
    (be_a_pipe, Flaw.UNREADABLE),
    (go, None),
]


@posix
@pytest.mark.parametrize(("change", "flaw"), CHANGES)
@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "before the start"])
def test_what_is_not_as_it_should_be_is_counted_and_removed(
    house: House, root: Path, change: Change, flaw: Flaw | None, is_running: bool
) -> None:
    tokens = house.keep("s")
    house.keep("other")
    (path,) = [each for each in files(root) if "other" not in each.read_bytes().decode("latin1")]
    change(path, house)
    if not is_running:
        house = house.again()
        assert flaw is Flaw.ALTERED or house.store.find("s", "alice", tokens) is None, "its header is enough to tell"
    assert house.read("s") is None
    assert house.store.find("s", "alice", tokens) is None
    assert not os.path.lexists(path)
    assert house.store.figures().ignored == ({} if flaw is None else {flaw: 1})
    assert house.holds("other")
    house.keep("s")
    assert house.holds("s")


def test_somebody_elses_is_neither_found_nor_read(house: House, root: Path) -> None:
    tokens = house.keep("s")
    assert house.store.find("s", "mallory", tokens) is None
    assert house.read("s", "mallory") is None
    assert files(root) == []
    assert house.store.figures().ignored == {Flaw.PRINCIPAL: 1}


def test_one_that_is_replaced_while_its_flaw_is_found_is_not_removed(house: House, root: Path) -> None:
    house.keep("s", tokens=10)
    alter(files(root)[0], house)
    tokens = tokens_of("s", 30)
    reading = house.store.read("s", "alice")
    assert house.store.keep("s", "alice", tokens, snapshot_of(tokens))
    house.threads["tenuto-snapshots-read"].run()
    house.run()
    assert reading.result(0) is None
    restored = house.read("s")
    assert restored is not None
    assert restored.tokens == tokens
    alter(files(root)[0], house)
    later = tokens_of("s", 40)
    house.store.read("s", "alice")
    assert house.store.keep("s", "alice", later, snapshot_of(later))
    with pytest.MonkeyPatch.context() as patch:
        Interrupted(patch, 2, house.threads["tenuto-snapshots-read"].run)
        house.run()
    assert house.store.figures().ignored == {Flaw.ALTERED: 2}
    restored = house.read("s")
    assert restored is not None
    assert restored.tokens == later


def test_a_model_loaded_in_another_way_has_files_of_its_own(house: House) -> None:
    house.keep("s")
    other = House(house.root, fingerprint="model 2")
    other.run()
    assert not other.holds("s")
    other.drop("s")
    assert house.holds("s")


def test_a_sequence_of_all_models_is_forgotten(house: House, root: Path) -> None:
    for each in (house, House(root, fingerprint="model 2")):
        each.keep("s")
        each.keep("t")
    forget(root, "s")
    forget(root, "nobody")
    assert len(files(root)) == 2
    assert (house.again().holds("s"), house.again().holds("t")) == (False, True)
    forget(root / "nothing", "s")


def test_what_models_left_that_are_not_loaded_any_more_expires(house: House, root: Path) -> None:
    house.keep("s")
    other = House(root, fingerprint="model 2")
    other.keep("t")
    (path,) = [path for path in files(root) if path not in files(next(root.iterdir()))]
    os.utime(path, (10, 10))
    expire(root, 20)
    assert not path.parent.exists()
    assert len(files(root)) == 1
    expire(root / "nothing", 20)


@posix
def test_the_folder_of_a_store_is_its_own_to_clear(root: Path) -> None:
    house = House(root, owned=FolderLock)
    house.run()
    expire(root, 20)
    house.keep("s")
    (path,) = files(root)
    os.utime(path, (10, 10))
    expire(root, 20)
    assert house.read("s") is not None


@posix
def test_a_folder_that_is_taken_away_before_a_store_has_it_is_made_again(root: Path) -> None:
    house = House(root, owned=FolderLock)
    expire(root, 20)
    house.keep("s")
    assert house.read("s") is not None


@posix
def test_folder_and_files_are_their_users_alone(root: Path) -> None:
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    old = os.umask(0)
    try:
        House(root).keep("s")
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*")) if path.is_dir()}
    assert modes == {0o700}
    assert [stat.S_IMODE(path.stat().st_mode) for path in files(root)] == [0o600]
    root.chmod(0o1777)
    with pytest.raises(ConfigurationError):
        House(root)


def test_what_a_process_was_writing_is_removed_at_the_start_and_no_file_of_others(house: House, root: Path) -> None:
    house.keep("s")
    (path,) = files(root)
    path.with_suffix(".partial").write_bytes(b"half of")
    path.with_name("README").write_text("not ours")
    again = house.again()
    assert files(root) == sorted([path, path.with_name("README")])
    assert again.holds("s")


def test_what_cannot_be_removed_at_the_start_keeps_no_other_from_its_use(house: House, root: Path) -> None:
    house.keep("s")
    (path,) = files(root)
    path.with_suffix(".partial").mkdir()
    assert house.again().holds("s")


CHANGING = ("open", "write", "replace", "unlink")


class Interrupted:
    """Calls something just before a system call of a number, of those that change the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, interfere: Callable[[], object]) -> None:
        self.left, self._interfere = number, interfere
        for name in CHANGING:
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                self._interfere()
            return call(*arguments, **named)

        return watched


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("is_given_again", [False, True])
def test_a_drop_amid_a_write_leaves_nothing(tmp_path: Path, is_replaced: bool, is_given_again: bool) -> None:
    tokens = tokens_of("s", 30)
    snapshot = snapshot_of(tokens, 3 << 20)
    moments = 0
    while True:
        house = House(tmp_path / str(moments))
        house.keep("other")
        if is_replaced:
            house.keep("s", tokens=10)
        dropped: list[Any] = []

        def drop(house: House = house, dropped: list[Any] = dropped) -> None:
            dropped.append(house.store.drop("s"))
            dropped[0].add_done_callback(lambda _: dropped.append(names()))
            assert house.store.find("s", "alice", tokens) is None
            if is_given_again:
                later = tokens_of("s", 40)
                assert house.store.keep("s", "alice", later, snapshot_of(later))

        def names(house: House = house) -> list[Path]:
            return [path for path in files(house.root) if b'"sequence":"s"' in path.read_bytes()]

        assert house.store.keep("s", "alice", tokens, snapshot)
        with pytest.MonkeyPatch.context() as patch:
            interrupted = Interrupted(patch, moments, drop)
            house.run()
        if interrupted.left >= 0:
            break
        assert dropped[0].result(0) is None
        assert dropped[1] == [], f"at call {moments} something was there as the drop was told"
        assert len(names()) == is_given_again
        figures = house.store.figures()
        assert (figures.files, figures.waiting) == (1 + is_given_again, 0)
        assert (house.store.find("s", "alice", tokens) is not None) == is_given_again
        assert house.holds("s") == is_given_again
        assert house.holds("other")
        assert Refusal.FAILED not in figures.refused
        moments += 1
    assert moments >= 6


def test_what_is_dropped_is_not_written_to_its_end(house: House, monkeypatch: Any) -> None:
    house.run()
    tokens = tokens_of("s")
    assert house.store.keep("s", "alice", tokens, snapshot_of(tokens, 9 << 20))
    interrupted = Interrupted(monkeypatch, 3, lambda: house.store.drop("s"))
    house.run()
    assert -9 < interrupted.left < 0


def test_a_drop_is_told_once_the_disk_has_been_told(house: House, root: Path, monkeypatch: Any) -> None:
    for sequence in "abc":
        house.keep(sequence)
    seen: list[Any] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(len(files(root))))
    for dropped in [house.store.drop(sequence) for sequence in "ab"]:
        dropped.add_done_callback(lambda _: seen.append("told"))
    house.run()
    assert seen == [1, "told", "told"]


def test_a_drop_during_the_look_at_what_is_there_leaves_nothing(house: House, root: Path) -> None:
    tokens = house.keep("s")
    house.keep("other")
    for moment in range(2):
        again = House(root)
        with pytest.MonkeyPatch.context() as patch:
            Interrupted(patch, moment, lambda again=again: again.store.drop("s"))  # type: ignore[misc]
            again.writer.step()
            assert again.store.find("s", "alice", tokens) is None
        again.run()
        assert (again.holds("s"), again.holds("other")) == (False, True)
        assert len(files(root)) == again.store.figures().files == 1
        house.keep("s")


def test_a_drop_where_the_whole_folder_was_taken_away_leaves_nothing(house: House, root: Path) -> None:
    house.keep("s")
    shutil.rmtree(root)
    house.drop("s")
    house.drop("nobody")
    assert files(root) == []


def test_a_store_that_nobody_reaches_any_more_writes_nothing(house: House, root: Path, monkeypatch: Any) -> None:
    house.keep("before")
    for name in ("s", "t"):
        tokens = tokens_of(name)
        assert house.store.keep(name, "alice", tokens, snapshot_of(tokens))
    with monkeypatch.context() as patch:
        Interrupted(patch, 2, house.store.abandon)
        house.run()
    assert not house.store.keep("u", "alice", tokens, snapshot_of(tokens))
    house.store.close(0)
    assert len(files(root)) == 1
    assert house.again().holds("before")


def test_a_drop_does_not_wait_for_the_write_of_another(house: House) -> None:
    house.keep("other")
    tokens = tokens_of("s")
    assert house.store.keep("s", "alice", tokens, snapshot_of(tokens, 3 << 20))
    dropped: list[Any] = []
    seen: list[bool] = []

    def drop() -> None:
        dropped.append(house.store.drop("other"))
        dropped[0].add_done_callback(lambda _: seen.append(house.store.find("s", "alice", tokens) is None))

    with pytest.MonkeyPatch.context() as patch:
        Interrupted(patch, 3, drop)
        house.run()
    assert seen == [True], "it was told before the other was written"
    assert house.holds("s")


def test_a_drop_that_cannot_be_carried_out_says_so(house: House, root: Path) -> None:
    house.keep("s")
    (path,) = files(root)
    path.unlink()
    path.mkdir()
    dropped = house.store.drop("s")
    house.run()
    assert isinstance(dropped.exception(0), OSError)
    path.rmdir()
    house.drop("s")


def test_what_is_read_while_its_sequence_is_dropped_is_not_given(house: House) -> None:
    house.keep("s")
    reading = house.store.read("s", "alice")
    with pytest.MonkeyPatch.context() as patch:
        Interrupted(patch, 0, lambda: house.store.drop("s"))
        house.threads["tenuto-snapshots-read"].run()
    assert reading.result(0) is None
    assert house.store.figures().restored == 0


def test_what_cannot_be_read_for_lack_of_memory_is_as_if_it_were_not_there(house: House, monkeypatch: Any) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    house.keep("s")
    monkeypatch.setattr(np, "empty", no_memory)
    assert house.read("s") is None
    monkeypatch.undo()
    assert house.holds("s")


def test_a_snapshot_that_cannot_be_written_is_counted_and_changes_nothing(house: House, root: Path) -> None:
    house.keep("s", tokens=10)
    tokens = tokens_of("s", 30)
    for data in (np.zeros(3 << 20, np.uint8), "no bytes"):
        assert house.store.keep("s", "alice", tokens, Snapshot(30, 3 << 20, data))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", broken)
            house.run()
    assert house.store.figures().refused == {Refusal.FAILED: 2}
    restored = house.read("s")
    assert restored is not None
    assert len(restored.tokens) == 10
    assert len(files(root)) == 1


def broken(*_: object) -> int:
    raise OSError("the disk is broken")


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.runtime.engine.snapshot_rig import House, files
house = House(Path(sys.argv[1]))
house.keep("small")
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20,) * 2)
house.keep("large", nbytes=5 << 20)
assert house.store.figures().refused == {"failed": 1}, house.store.figures()
house.keep("another")
assert [house.holds(one) for one in ("small", "large", "another")] == [True, False, True]
assert len(files(house.root)) == 2
"""


@posix
def test_a_disk_that_becomes_full_is_counted_and_does_no_harm(root: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL, root], capture_output=True, timeout=HANGS_S, check=False)
    assert ran.returncode == 0, ran.stderr.decode()


def test_the_last_of_a_disk_is_left_to_others(root: Path) -> None:
    house = House(root, replace(ROOMY, spare_bytes=1 << 62))
    house.keep("s")
    assert files(root) == []
    assert house.store.figures().refused == {Refusal.DISK: 1}


def test_what_waits_is_written_at_the_end_and_nothing_is_taken_after_it(house: House) -> None:
    tokens = tokens_of("s")
    assert house.store.keep("s", "alice", tokens, snapshot_of(tokens))
    dropped = house.store.drop("t")
    house.store.close(0)
    assert dropped.result(0) is None
    assert not house.store.keep("s", "alice", tokens, snapshot_of(tokens))
    assert house.store.read("s", "alice").result(0) is None
    assert isinstance(house.store.drop("s").exception(0), ShuttingDown)
    house.store.close(0)
    assert house.again().holds("s")


def test_threads_of_its_own_keep_read_and_drop(root: Path) -> None:
    store = SnapshotStore(root, "model", Limits(1 << 30, 1 << 30, 1e9, 0))
    given = {f"s{number}": tokens_of(f"s{number}", 10 + number) for number in range(20)}
    for sequence, tokens in given.items():
        assert store.keep(sequence, "alice", tokens, snapshot_of(tokens, 2 << 20))
    dropped = [store.drop(f"s{number}") for number in range(0, 20, 2)]
    for each in dropped:
        assert each.result(HANGS_S) is None
    store.close(HANGS_S)
    store = SnapshotStore(root, "model", Limits(1 << 30, 1 << 30, 1e9, 0))
    store.drop("nobody").result(HANGS_S)
    while store.figures().files < 10:
        store.drop("nobody").result(HANGS_S)
    for number, (sequence, tokens) in enumerate(given.items()):
        restored = store.read(sequence, "alice").result(HANGS_S)
        assert (restored is not None) == bool(number % 2)
        if restored is not None:
            assert restored.tokens == tokens
            assert is_whole(restored)
    store.close(HANGS_S)


Step = tuple[str, str, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["keep", "drop", "read", "find", "write", "restart", "age"]),
        st.sampled_from(["a1", "a2", "a3", "b1", "b2"]),
        st.integers(1, 3000),
    ),
    max_size=40,
)


@given(history=steps)
def test_whatever_happens_what_is_read_is_whole_and_what_was_dropped_is_gone(
    tmp_path_factory: pytest.TempPathFactory, history: list[Step]
) -> None:
    limits = Limits(budget_bytes=12_000, queue_bytes=5_000, keep_s=100, spare_bytes=0)
    house = House(tmp_path_factory.mktemp("s"), limits)
    gone: set[str] = set()
    for act, sequence, number in history:
        principal, tokens = sequence[0], tokens_of(sequence, 1 + number % 50)
        match act:
            case "keep":
                if house.store.keep(sequence, principal, tokens, snapshot_of(tokens, number)):
                    gone.discard(sequence)
            case "drop":
                house.drop(sequence)
                gone.add(sequence)
            case "read":
                assert not (house.holds(sequence, principal) and sequence in gone)
            case "find":
                assert house.store.find(sequence, principal, tokens) is None or sequence not in gone
            case "write":
                house.run()
            case "restart":
                house = house.again()
            case _:
                house.clock.now += number / 10
        there = files(house.root)
        assert sum(path.stat().st_size for path in there) <= limits.budget_bytes
        assert house.store.figures().waiting_bytes <= limits.queue_bytes
        assert not any(f'"sequence":"{one}"'.encode() in path.read_bytes() for one in gone for path in there)
    house.run()
    assert house.store.figures().ignored == {}
    there = files(house.root)
    assert house.store.figures().files == len(there)
    assert house.store.figures().nbytes == sum(path.stat().st_size for path in there)
