"""A disk that is full or damaged: what was stored serves on, is mended by a pull, and can be removed in any case."""

import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.errors import Conflict, ModelLoadFailed, NotFound
from tenuto.pipelines.model_store import ModelStore, ensure, pull, source_of
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.pipelines.model_store.sources import Offer, RemoteFile
from tenuto.pipelines.model_store.verify import verify
from tests.patience import HANGS_S
from tests.pipelines.model_store.servers import Files

ONE = b"GGUF" + bytes(range(256)) * 1000
TWO = b"GGUF" + bytes(reversed(range(256))) * 1000

BOUNDED = """
import resource, sys
from pathlib import Path
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store import LocalModel, ModelStore, is_remote, pull, source_of
store = ModelStore(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    source = sys.argv[2]
    pull(store, source_of(source, store.root) if is_remote(source) else LocalModel(Path(source), links=False), "tiny")
except ModelLoadFailed as error:
    print(error)
"""


def pulled_with_room(store: ModelStore, source: str, room: int) -> str:
    """What a pull says in a process whose files may have so many bytes, as on a disk that becomes full."""
    ran = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(store.root), source, str(room)],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no limits there")
@pytest.mark.parametrize("kind", ["mirror", "ollama", "file"])
def test_a_disk_that_becomes_full_changes_nothing_and_the_pull_goes_on_later(
    store: ModelStore, files: Files, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "before.gguf").write_bytes(TWO)
    before = pull(store, LocalModel(tmp_path / "before.gguf"), "tiny")
    files.files["/tiny.gguf"] = ONE
    (tmp_path / "tiny.gguf").write_bytes(ONE)
    files.add_ollama("library/tiny", {"model": ONE})
    source = {
        "mirror": f"{files.url}/tiny.gguf",
        "ollama": f"ollama:{files.url}/library/tiny",
        "file": str(tmp_path / "tiny.gguf"),
    }[kind]
    assert "File too large" in pulled_with_room(store, source, 100_007)
    assert "cannot be changed on the disk" in pulled_with_room(store, source, 10) or kind != "file"
    assert store.available() == [before]
    assert verify(before) == []
    asked = len(files.requests)
    assert pulled_with_room(store, source, 1 << 20) == ""
    assert store.expect("tiny").path.read_bytes() == ONE
    if kind != "file":
        assert {wanted for _, _, wanted in files.requests[asked:] if wanted} == {"bytes=100007-"}


def test_all_that_is_to_come_must_have_room_before_anything_comes(store: ModelStore) -> None:
    class Large:
        name = source = "large"

        def look(self) -> Offer:
            return Offer("large", None, "gguf", (RemoteFile("a.gguf", 1), RemoteFile("b.gguf", 1 << 49, "0" * 64)))

        def bring(self, *arguments: object) -> Path:
            raise AssertionError("nothing was to come")

    with pytest.raises(ModelLoadFailed, match=r"large needs 562950\.0 GB more in .*; \d+\.\d are free"):
        pull(store, Large())


def test_a_file_that_is_linked_needs_no_room(store: ModelStore, tmp_path: Path) -> None:
    file = tmp_path / "sparse.gguf"
    with file.open("wb") as written:
        written.write(b"GGUF")
    offer = LocalModel(file).look()
    assert (offer.takes_room, LocalModel(file, links=False).look().takes_room) == (False, True)


def test_a_damaged_pointer_is_named_and_a_pull_from_the_source_mends_it(
    store: ModelStore, files: Files, tmp_path: Path
) -> None:
    files.files["/tiny.gguf"] = ONE
    source = source_of(f"{files.url}/tiny.gguf", store.root)
    first = pull(store, source)
    (first.folder.parent.parent / "current.json").write_text("{")
    with pytest.raises(ModelLoadFailed, match=r"current\.json is damaged.*; pull the model again from its source"):
        store.find("tiny")
    assert store.has("tiny")
    assert pull(store, source).version.id == first.version.id
    assert store.expect("tiny").path.read_bytes() == ONE


@pytest.mark.parametrize("damaged", ["current.json", "version.json"])
def test_a_model_whose_records_are_damaged_can_be_removed(store: ModelStore, tmp_path: Path, damaged: str) -> None:
    (tmp_path / "tiny.gguf").write_bytes(ONE)
    model = pull(store, LocalModel(tmp_path / "tiny.gguf"))
    (model.folder / damaged if damaged == "version.json" else model.folder.parent.parent / damaged).write_text("{")
    store.remove("tiny")
    assert not store.has("tiny")
    assert list(store.root.rglob("*.gguf")) == []
    with pytest.raises(NotFound):
        store.remove("tiny")


def test_a_damaged_lock_file_is_mended_by_a_pull(store: ModelStore, files: Files) -> None:
    files.add_ollama("library/tiny", {"model": ONE})
    source = source_of(f"ollama:{files.url}/library/tiny", store.root)
    model = pull(store, source)
    (model.folder / "version.json").write_text("{}")
    with pytest.raises(ModelLoadFailed, match=r"version\.json is damaged"):
        store.find("tiny")
    assert pull(store, source).version.id == model.version.id
    assert verify(store.expect("tiny")) == []


def test_a_file_of_a_source_without_digests_is_mended_too(store: ModelStore, files: Files) -> None:
    files.files["/tiny.gguf"], files.has_tags = ONE, False
    source = source_of(f"{files.url}/tiny.gguf", store.root)
    model = pull(store, source)
    model.path.write_bytes(TWO)
    assert pull(store, source).path.read_bytes() == ONE
    assert verify(store.expect("tiny")) == []


def test_what_others_put_into_the_store_is_passed_over(
    store: ModelStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(ONE)
    model = pull(store, LocalModel(tmp_path / "tiny.gguf"))
    for folder in (model.folder.parent, model.folder.parent.parent.parent):
        (folder / ".DS_Store").write_bytes(b"x")
        (folder / "a folder").mkdir()
    assert [each.name for each in store.available()] == ["tiny"]
    assert store.versions("tiny") == [model]
    assert store.expect(f"tiny@{model.version.id[:4]}") == model
    assert caplog.text == ""


def test_what_has_come_of_a_pull_that_broke_off_is_listed_and_removed(store: ModelStore, files: Files) -> None:
    files.files["/Tiny.gguf"], files.break_after = ONE, 100_000
    with pytest.raises(ModelLoadFailed, match="broke off"):
        pull(store, source_of(f"{files.url}/Tiny.gguf", store.root))
    [(name, come)] = store.unfinished()
    assert (name, come >= 100_000) == ("tiny", True)
    assert store.available() == []
    assert store.remove("tiny") == []
    assert store.unfinished() == []
    assert [path for path in store.root.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_source_is_not_taken_for_another_one_of_the_same_name(
    store: ModelStore, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(TWO)
    stored = pull(store, LocalModel(tmp_path / "tiny.gguf"))
    files.files["/tiny.gguf"] = ONE
    stored.path.unlink()
    with pytest.raises(Conflict, match=r"tiny is stored already, from .*tiny\.gguf"):
        ensure(store, source_of(f"{files.url}/tiny.gguf", store.root))


def test_a_version_that_was_swapped_for_a_link_elsewhere_is_damaged_and_mended(
    store: ModelStore, files: Files, tmp_path: Path
) -> None:
    files.add_ollama("library/tiny", {"model": ONE})
    source = source_of(f"ollama:{files.url}/library/tiny", store.root)
    model = pull(store, source)
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(TWO)
    model.path.unlink()
    model.path.symlink_to(mine)
    assert [each.what for each in verify(model)] == ["digest"]
    assert pull(store, source).path.read_bytes() == ONE
    assert mine.read_bytes() == TWO
    assert not model.path.is_symlink()
    store.remove("tiny")
    assert mine.read_bytes() == TWO
