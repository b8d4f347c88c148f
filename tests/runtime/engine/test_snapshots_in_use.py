"""Snapshots that are handed out are marked until they have served; and a folder has one store at a time."""

from pathlib import Path

import pytest

from tenuto.errors import ShuttingDown
from tenuto.runtime.engine.snapshots import Flaw, Limits, SnapshotStore, forget
from tenuto.runtime.engine.snapshots.ownership import FolderLock
from tests.patience import HANGS_S
from tests.runtime.engine.snapshot_rig import House, files, snapshot_of, tokens_of

PLENTY = Limits(1 << 30, 1 << 30, 1e9, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def house(root: Path) -> House:
    return House(root)


def test_one_that_a_process_ended_under_is_not_used_again(house: House, root: Path) -> None:
    house.keep("poison")
    house.keep("other")
    assert house.read("poison", serves=False) is not None
    again = house.again()
    assert again.store.find("poison", "alice", tokens_of("poison")) is None
    assert not again.holds("poison")
    assert again.holds("other")
    assert again.store.figures().ignored == {Flaw.FATAL: 1}
    assert len(files(root)) == 1
    assert house.again().store.figures().ignored == {}


def test_one_that_has_served_is_used_again_and_again(house: House) -> None:
    house.keep("s")
    for _ in range(3):
        assert house.read("s") is not None
        house = house.again()
        assert house.store.figures().ignored == {}


def test_one_that_is_read_again_before_it_has_served_is_whole(house: House) -> None:
    house.keep("s")
    assert house.read("s", serves=False) is not None
    assert house.read("s", serves=False) is not None
    house.store.trust("s")
    assert house.holds("s")
    assert house.again().holds("s")


def test_an_orderly_end_accuses_none(house: House) -> None:
    house.keep("s")
    assert house.read("s", serves=False) is not None
    house.store.close(0)
    assert house.again().holds("s")


def test_one_that_is_tried_is_dropped_as_any(house: House, root: Path) -> None:
    house.keep("s")
    assert house.read("s", serves=False) is not None
    house.drop("s")
    assert files(root) == []
    house.store.trust("s")
    house.run()
    assert files(root) == []
    house.keep("t")
    assert house.read("t", serves=False) is not None
    forget(root, "t")
    assert files(root) == []


def test_a_new_one_takes_the_place_of_one_that_is_tried(house: House, root: Path) -> None:
    house.keep("s", tokens=20)
    assert house.read("s", serves=False) is not None
    house.keep("s", tokens=30)
    assert len(files(root)) == house.store.figures().files == 1
    restored = house.again().read("s")
    assert restored is not None
    assert len(restored.tokens) == 30


def test_one_that_the_library_does_not_take_is_removed(house: House, root: Path) -> None:
    house.keep("s")
    assert house.read("s", serves=False) is not None
    house.store.reject("s")
    house.run()
    assert files(root) == []
    assert house.store.figures().ignored == {Flaw.REFUSED: 1}
    house.store.reject("s")
    assert house.store.figures().ignored == {Flaw.REFUSED: 1}


def test_a_folder_has_one_store_at_a_time_and_the_next_takes_it_over(root: Path) -> None:
    first = House(root, owned=FolderLock)
    first.keep("s")
    second = House(root, owned=FolderLock)
    second.keep("new")
    assert second.store.wait_until_known(0), "nobody waits for the end of another"
    assert not second.holds("s")
    assert (second.store.figures().files, second.store.figures().waiting, len(files(root))) == (0, 1, 1)
    first.store.close(0)
    second.run()
    assert second.holds("s")
    assert second.holds("new")
    assert second.store.figures().files == len(files(root)) == 2


def test_a_store_without_the_folder_removes_what_is_dropped_and_ends(root: Path) -> None:
    first = House(root, owned=FolderLock)
    first.keep("s")
    second = House(root, owned=FolderLock)
    second.drop("s")
    assert files(root) == []
    assert not first.holds("s")
    second.keep("new")
    second.store.close(0)
    assert isinstance(second.store.drop("s").exception(0), ShuttingDown)
    assert files(root) == []
    first.keep("t")
    assert first.holds("t")


def test_stores_with_threads_of_their_own_hand_a_folder_over(root: Path) -> None:
    first, second = (SnapshotStore(root, "model", PLENTY) for _ in range(2))
    assert first.wait_until_known(HANGS_S)
    tokens = tokens_of("s")
    assert first.keep("s", "alice", tokens, snapshot_of(tokens))
    assert second.keep("t", "alice", tokens, snapshot_of(tokens))
    first.close(HANGS_S)
    while second.figures().files < 2:
        second.drop("nobody").result(HANGS_S)
    assert second.read("s", "alice").result(HANGS_S) is not None
    second.close(HANGS_S)
