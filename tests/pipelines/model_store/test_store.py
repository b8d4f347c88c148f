"""Stored models by their names and versions: found, listed, switched, rolled back and removed."""

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Conflict, ModelLoadFailed, NotFound
from tenuto.pipelines.finding import available, resolve
from tenuto.pipelines.loader import LoadSettings, find, load
from tenuto.pipelines.model_store import ModelStore, names, pull
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.pipelines.model_store.records import StoredFile, Version, dumped, read_version, stays_inside
from tests.embedded import gguf_file, mlx_folder


@pytest.fixture
def first_and_second(store: ModelStore, tmp_path: Path) -> tuple[str, str]:
    """The ids of two versions of the model `tiny`; the second is current."""
    ids = []
    for content in (b"GGUF one", b"GGUF two"):
        file = tmp_path / "tiny.gguf"
        file.unlink(missing_ok=True)
        file.write_bytes(content)
        ids.append(pull(store, LocalModel(file)).version.id)
    return ids[0], ids[1]


def content(store: ModelStore, model: str) -> bytes:
    return store.expect(model).path.read_bytes()


def test_a_version_is_found_by_the_name_of_its_model_or_by_its_own(
    store: ModelStore, first_and_second: tuple[str, str]
) -> None:
    first, second = first_and_second
    assert (content(store, "tiny"), content(store, f"tiny@{first}")) == (b"GGUF two", b"GGUF one")
    assert content(store, f"TINY:latest@{second[:6]}") == b"GGUF two"
    assert [each.version.id for each in store.versions("tiny")] == [first, second]
    assert store.find("another") is None
    with pytest.raises(NotFound, match=f"version of the stored model tiny 'ffffffff'; known: .*{first}"):
        store.find("tiny@ffffffff")


def test_what_is_stored_is_found_by_those_who_serve(store: ModelStore, first_and_second: tuple[str, str]) -> None:
    first, second = first_and_second
    [listed] = available(store.root)
    assert (listed.name, listed.kind, listed.version.bytes, listed.version.id) == ("tiny", "gguf", 8, second)
    found, earlier = resolve("tiny", store.root), resolve(f"tiny@{first}", store.root)
    assert found is not None
    assert earlier is not None
    assert (found.id, found.kind, found.path.read_bytes()) == ("tiny", "gguf", b"GGUF two")
    assert earlier.path.read_bytes() == b"GGUF one"
    assert [resolve(name, store.root) for name in ("other", "tiny@ffffffff", "../x", "hf:a/b", "")] == [None] * 5


def test_model_takes_the_name_of_a_stored_model(store: ModelStore, tmp_path: Path) -> None:
    settings = LoadSettings(downloads=store.root, verdicts=tmp_path / "verdicts", slots=1, cells=256, threads=1)
    pull(store, LocalModel(mlx_folder()), "Tenuto/small:mlx")
    found = find("Tenuto/small:mlx", settings)
    assert (found.id, found.kind) == ("Tenuto/small:mlx", "mlx")
    with pytest.raises(ModelLoadFailed, match="there is no model file none, and no stored model of that name"):
        find("none", settings)


def test_rolling_back_goes_through_the_versions_that_were_current(
    store: ModelStore, first_and_second: tuple[str, str], tmp_path: Path
) -> None:
    first, second = first_and_second
    assert store.rollback("tiny").version.id == first
    with pytest.raises(Conflict, match=f"tiny has no version before {first}"):
        store.rollback("tiny")
    assert store.rollback("tiny", second[:4]).version.id == second
    assert store.rollback("tiny").version.id == first
    with pytest.raises(NotFound):
        store.rollback("none")


def test_the_state_of_the_store_tells_each_change(store: ModelStore, first_and_second: tuple[str, str]) -> None:
    second, nothing = store.state(), ModelStore(store.root / "none").state()
    assert store.state() == second
    store.rollback("tiny")
    first = store.state()
    store.rollback("tiny", first_and_second[1])
    assert first not in (second, store.state())
    store.remove("tiny")
    assert store.state() == nothing


def test_what_comes_again_is_the_version_that_it_was(
    store: ModelStore, first_and_second: tuple[str, str], tmp_path: Path
) -> None:
    first, second = first_and_second
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(b"GGUF one")
    assert len(store.versions("tiny")) == 2
    again = pull(store, LocalModel(copy), "other")
    assert again.version.id != first, "a file of another name makes another version"
    (tmp_path / "tiny.gguf").unlink()
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF one")
    assert pull(store, LocalModel(tmp_path / "tiny.gguf")).version.id == first
    assert {each.version.id for each in store.versions("tiny")} == {first, second}


def test_a_version_is_removed_and_then_the_model(store: ModelStore, first_and_second: tuple[str, str]) -> None:
    first, second = first_and_second
    with pytest.raises(Conflict, match=f"tiny@{second} is the current version"):
        store.remove(f"tiny@{second}")
    assert [each.version.id for each in store.remove(f"tiny@{first}")] == [first]
    with pytest.raises(Conflict, match="has no version before"):
        store.rollback("tiny")
    assert [each.version.id for each in store.remove("tiny")] == [second]
    assert store.available() == []
    assert list(store.root.rglob("*.gguf")) == []
    with pytest.raises(NotFound, match=r"stored model 'tiny'; known: none"):
        store.remove("tiny")


def test_what_is_held_is_not_removed(store: ModelStore, first_and_second: tuple[str, str]) -> None:
    first, _ = first_and_second
    held = store.expect(f"tiny@{first}").hold()
    assert held is not None
    for model in ("tiny", f"tiny@{first}"):
        with pytest.raises(Conflict, match=f"tiny@{first} is loaded by a server or another process"):
            store.remove(model)
    assert len(store.versions("tiny")) == 2
    held.release()
    gone = store.expect("tiny")
    store.remove("tiny")
    assert gone.hold() is None


def test_a_loaded_model_is_held_until_it_is_gone(store: ModelStore, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    settings = LoadSettings(downloads=store.root, verdicts=tmp_path / "verdicts", slots=1, cells=256, threads=1)
    pull(store, LocalModel(gguf_file()), "small")
    pipeline = load("small", settings)
    assert pipeline.codec.info.model == "small"
    with pytest.raises(Conflict, match="is loaded by"):
        store.remove("small")
    pipeline.backend.close()
    del pipeline
    store.remove("small")


def test_two_do_not_change_a_model_at_a_time(store: ModelStore, first_and_second: tuple[str, str]) -> None:
    entered, leave = threading.Event(), threading.Event()

    def change() -> None:
        with store.changing("tiny"):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=change)
    thread.start()
    entered.wait()
    try:
        with pytest.raises(Conflict, match="another process is fetching or changing Tiny"), store.changing("Tiny", 0.0):
            pass
        with store.changing("other", 0.0):
            pass
    finally:
        leave.set()
        thread.join()


def test_damaged_records_are_named_and_leave_the_others_alone(
    store: ModelStore, first_and_second: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pull(store, LocalModel(tmp_path / "tiny.gguf"), "well")
    pointer = store.root / "store" / "models" / "tiny" / "current.json"
    pointer.write_bytes(b'{"name": "tiny"}')
    with pytest.raises(ModelLoadFailed, match=r"current\.json is damaged: current: Field required"):
        store.find("tiny")
    assert [each.name for each in store.available()] == ["well"]
    assert "is damaged" in caplog.text


def test_a_file_that_is_gone_or_cut_off_is_told_before_it_is_loaded(
    store: ModelStore, first_and_second: tuple[str, str]
) -> None:
    path = store.expect("tiny").path
    path.write_bytes(b"GGUF")
    with pytest.raises(
        ModelLoadFailed, match=r"tiny@\w+ is damaged: tiny.gguf is gone or cut off; `tenuto models pull"
    ):
        find("tiny", LoadSettings(downloads=store.root))


def test_names_are_those_of_the_hub_and_of_ollama() -> None:
    good = ["qwen3", "qwen3:4b", "Qwen/Qwen3-4B-GGUF:Q4_K_M", "registry.example.org/ns/model:tag", "a" * 160]
    bad = [
        "",
        "embedded",
        "embedded:gguf",
        "hf:owner/model",
        "../x",
        "a/../b",
        "a//b",
        "/a",
        "a b",
        "a" * 161,
        "é",
        "a:",
    ]
    assert [name for name in (*good, *bad) if names.is_name(name)] == good
    assert names.require("qwen3:latest") == "qwen3"
    with pytest.raises(ModelLoadFailed, match="cannot be the name of a model"):
        names.require("../x")
    with pytest.raises(ModelLoadFailed, match="does not name a version"):
        names.reference("qwen3@new")


NAMES = st.from_regex(r"[ab][AB.]?(/[ab])?(:(latest|x|X))?", fullmatch=True)


@given(NAMES, NAMES)
def test_two_names_share_a_folder_only_where_they_are_one(one: str, other: str) -> None:
    plain = [name.removesuffix(":latest").lower() for name in (one, other)]
    assert (names.key(one) == names.key(other)) == (plain[0] == plain[1])
    assert Path(names.key(one)).name == names.key(one)


@given(st.text(max_size=30))
def test_no_path_in_a_lock_file_leads_out_of_its_folder(path: str) -> None:
    version = Version("gguf", (StoredFile(path, 1, "0" * 64),), "x")
    if stays_inside(path):
        assert Path("/models", path).resolve().is_relative_to("/models")
        return
    with pytest.raises(ModelLoadFailed, match="is damaged"):
        read_version(json.dumps(json.loads(dumped(version))).encode(), "x")


def test_a_version_reads_back_as_it_was_written() -> None:
    version = Version("mlx", (StoredFile("a/b.json", 3, "1" * 64),), "hf:a/b", "abc", 12.5)
    assert read_version(dumped(version), "x") == version
