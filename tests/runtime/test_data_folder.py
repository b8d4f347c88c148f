"""Who owns the data folder."""

import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from tenuto.errors import ConfigurationError
from tenuto.runtime.data_folder.ownership import DataFolder, read_owner

OWN = """
import sys
from pathlib import Path
from tenuto.runtime.data_folder.ownership import DataFolder
folder = DataFolder.acquire(Path(sys.argv[1]))
folder.publish("http://127.0.0.1:1")
print(folder.owner.secret, flush=True)
sys.stdin.read()
"""


def test_the_owner_can_be_read_while_it_owns(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    assert read_owner(path) is None
    with DataFolder.acquire(path) as folder:
        assert read_owner(path) == folder.owner
        assert folder.owner.url is None
        folder.publish("http://127.0.0.1:8420")
        found = read_owner(path)
        assert found == folder.owner
        assert found is not None
        assert found.url == "http://127.0.0.1:8420"
    assert read_owner(path) is None


def test_who_asks_while_an_owner_comes_waits_for_its_entry(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", thread_local=False)
    lock.acquire()
    made: list[DataFolder] = []
    comes = threading.Timer(0.1, lambda: made.append(DataFolder(tmp_path, lock)))
    comes.start()
    found = read_owner(tmp_path)
    comes.join()
    assert found == made[0].owner
    made[0].release()


def test_a_second_owner_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with DataFolder.acquire(tmp_path) as folder:
        folder.publish("http://127.0.0.1:8420")
        with pytest.raises(ConfigurationError, match="8420") as raised:
            DataFolder.acquire(tmp_path)
        assert str(folder.owner.pid) in str(raised.value)
        assert read_owner(tmp_path) == folder.owner
    DataFolder.acquire(tmp_path).release()


def test_only_the_user_can_read_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with DataFolder.acquire(path) as folder:
        folder.publish("http://127.0.0.1:8420")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}
    assert modes == {"lock": 0o600, "owner.json": 0o600, "tenuto.key": 0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_all_owners_of_a_folder_have_its_key_one_after_the_other(tmp_path: Path) -> None:
    with DataFolder.acquire(tmp_path / "one") as folder:
        key = folder.key
    with DataFolder.acquire(tmp_path / "one") as folder:
        assert folder.key == key
    with DataFolder.acquire(tmp_path / "other") as folder:
        assert folder.key != key
    assert len(key) == 32


def test_a_key_that_is_damaged_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tenuto.key").write_bytes(b"half")
    with DataFolder.acquire(tmp_path) as folder:
        key = folder.key
        assert len(key) == 32
    assert "tenuto.key is damaged" in caplog.text
    with DataFolder.acquire(tmp_path) as folder:
        assert folder.key == key


def test_a_data_folder_that_was_open_to_other_users_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "data"
    (path / "snapshots" / "deep").mkdir(parents=True)
    ours = ["lock", "owner.json", "sessions.db", "sessions.db-wal", "sessions.db-shm", "serve.log", "snapshots/deep/s"]
    for name in (*ours, "notes.txt"):
        (path / name).write_text("")
        (path / name).chmod(0o644)
    for folder in (path, path / "snapshots", path / "snapshots" / "deep"):
        folder.chmod(0o755)
    with DataFolder.acquire(path):
        for name in ours:
            assert stat.S_IMODE((path / name).stat().st_mode) == 0o600, name
        for folder in (path, path / "snapshots", path / "snapshots" / "deep"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((path / "notes.txt").stat().st_mode) == 0o644, "it is not ours to change"


def test_a_folder_for_all_users_is_not_closed_to_them_but_refused(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    with pytest.raises(ConfigurationError, match=r"shared by all users \(its mode is 1777\).*shared/tenuto"):
        DataFolder.acquire(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o1777


def test_a_folder_that_cannot_be_closed_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a volume that belongs to another user, or a filesystem without modes."""
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(0o755)

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError

    for change in (forbidden, lambda *_, **__: None):
        monkeypatch.setattr(Path, "chmod", change)
        with pytest.raises(ConfigurationError, match=r"open to other users \(its mode is 0755\).*chmod go="):
            DataFolder.acquire(path)


def test_two_owners_have_different_secrets(tmp_path: Path) -> None:
    with DataFolder.acquire(tmp_path / "a") as a, DataFolder.acquire(tmp_path / "b") as b:
        assert a.owner.secret != b.owner.secret
        assert len(a.owner.secret) >= 32


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file"):
        DataFolder.acquire(tmp_path / "file")


@pytest.mark.slow
def test_a_killed_owner_owns_nothing_any_more(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", OWN, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        secret = child.stdout.readline().strip()
        found = read_owner(tmp_path)
        assert found is not None
        assert (found.pid, found.secret) == (child.pid, secret)
        child.kill()
    assert read_owner(tmp_path) is None
    with DataFolder.acquire(tmp_path) as folder:
        assert folder.owner.secret != secret
