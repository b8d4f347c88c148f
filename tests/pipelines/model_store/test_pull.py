"""Pulling from a mirror, from Ollama's registry and from the Hub: interrupted, resumed, broken, changed, mended."""

import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tenuto.errors import Conflict, ModelLoadFailed, TenutoError
from tenuto.pipelines.finding import model_id
from tenuto.pipelines.loader import LoadSettings, find
from tenuto.pipelines.model_store import ModelStore, Progress, ensure, pull, source_of
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.pipelines.model_store.sources import Offer
from tenuto.pipelines.model_store.verify import Damage, verify
from tests.embedded import mlx_folder
from tests.patience import HANGS_S
from tests.pipelines.hub import Hub
from tests.pipelines.model_store.servers import Files

ONE = b"GGUF" + bytes(range(256)) * 1000
TWO = b"GGUF" + bytes(reversed(range(256))) * 1000


def bring(store: ModelStore, source: str) -> bytes:
    return pull(store, source_of(source, store.root)).path.read_bytes()


@pytest.fixture(params=["mirror", "ollama", "hub"])
def source(request: pytest.FixtureRequest, files: Files, hub: Hub) -> "Source":
    return Source(request.param, files, hub)


class Source:
    """One model at one of the kinds of source."""

    def __init__(self, kind: str, files: Files, hub: Hub) -> None:
        self.kind, self._files, self._hub = kind, files, hub
        self.named = {
            "mirror": f"{files.url}/tiny.gguf",
            "ollama": f"ollama:{files.url}/library/tiny:latest",
            "hub": "hf:owner/model",
        }[kind]
        self.has(ONE)

    def has(self, content: bytes) -> None:
        match self.kind:
            case "mirror":
                self._files.files["/tiny.gguf"] = content
            case "ollama":
                self._files.add_ollama("library/tiny", {"model": content, "template": b"{{ .Prompt }}"})
            case _:
                self._hub.files = {"tiny-Q8_0.gguf": content}
                self._hub.commit = hashlib.sha1(content).hexdigest()

    def breaks_after(self, count: int | None) -> None:
        self._files.break_after = self._hub.break_after = count

    def sends_wrong_bytes(self, wrong: bool) -> None:
        if self.kind == "hub":
            self._hub.listed_sha = {"tiny-Q8_0.gguf": "0" * 64} if wrong else {}
            return
        for path, content in self._files.files.items():
            if content[:4] == b"GGUF":
                self._files.files[path] = (TWO if wrong else ONE) if len(content) == len(ONE) else content

    def ranges(self, content: bytes = ONE) -> list[str | None]:
        if self.kind == "hub":
            return [wanted for path, wanted in self._hub.requests if path.startswith("/files/")]
        path = "/tiny.gguf" if self.kind == "mirror" else f"/cdn/sha256:{hashlib.sha256(content).hexdigest()}"
        return self._files.asked(path)


def test_a_pull_that_broke_off_goes_on_and_until_then_nothing_has_changed(store: ModelStore, source: Source) -> None:
    assert bring(store, source.named) == ONE
    before = store.available()
    source.has(TWO)
    source.breaks_after(100_000)
    with pytest.raises(ModelLoadFailed, match="broke off and can be resumed"):
        bring(store, source.named)
    assert store.available() == before
    source.breaks_after(None)
    assert bring(store, source.named) == TWO
    assert source.ranges(TWO)[-1] == "bytes=100000-"
    assert store.rollback(before[0].name).path.read_bytes() == ONE


def test_what_came_broken_is_thrown_away_and_nothing_has_changed(store: ModelStore, source: Source) -> None:
    if source.kind == "mirror":
        source.named += f"#sha256={hashlib.sha256(ONE).hexdigest()}"
    source.sends_wrong_bytes(True)
    with pytest.raises(ModelLoadFailed, match="came broken: its SHA-256 is not the listed one; nothing changed"):
        bring(store, source.named)
    assert store.available() == []
    assert [path for path in store.root.rglob("*") if path.is_file() and path.stat().st_size >= len(ONE)] == []
    source.sends_wrong_bytes(False)
    assert bring(store, source.named) == ONE


def test_what_is_stored_serves_without_a_question(store: ModelStore, source: Source) -> None:
    bring(store, source.named)
    source.has(TWO)
    asked = len(source.ranges())
    found = find(source.named, LoadSettings(downloads=store.root))
    assert (found.path.read_bytes(), found.id) == (ONE, model_id(source.named))
    assert len(source.ranges()) == asked


def test_a_damaged_file_is_told_by_verify_and_mended_by_a_pull(store: ModelStore, source: Source) -> None:
    bring(store, source.named)
    [model] = store.available()
    assert verify(model) == []
    damaged = bytearray(ONE)
    damaged[1000] ^= 1
    model.path.write_bytes(damaged)
    assert verify(model) == [Damage(model.path.name, "digest")]
    assert bring(store, source.named) == ONE
    assert verify(model) == []
    model.path.write_bytes(b"GGUF")
    assert verify(model) == [Damage(model.path.name, "size")]
    model.path.unlink()
    assert verify(model) == [Damage(model.path.name, "missing")]
    assert ensure(store, source_of(source.named, store.root)).path.read_bytes() == ONE


def test_the_progress_is_told_from_the_first_byte_to_the_last(store: ModelStore, source: Source) -> None:
    told: list[Progress] = []
    pull(store, source_of(source.named, store.root), tell=told.append)
    assert (told[0].phase, told[-1].phase) == ("looking", "storing")
    for phase in ("fetching", "checking"):
        amounts = [each.done for each in told if each.phase == phase and each.total == len(ONE)]
        assert amounts == sorted(amounts)
        assert amounts[-1] == len(ONE)


def test_whoever_is_told_may_end_the_pull(store: ModelStore, source: Source) -> None:
    class Left(Exception):
        pass

    def leave(progress: Progress) -> None:
        if progress.done > 50_000:
            raise Left

    with pytest.raises(Left):
        pull(store, source_of(source.named, store.root), tell=leave)
    assert store.available() == []
    assert bring(store, source.named) == ONE


def test_a_source_that_changed_begins_anew(store: ModelStore, files: Files) -> None:
    files.files["/tiny.gguf"], files.break_after = ONE, 100_000
    with pytest.raises(ModelLoadFailed, match="broke off"):
        bring(store, f"{files.url}/tiny.gguf")
    files.files["/tiny.gguf"], files.break_after = TWO, None
    assert bring(store, f"{files.url}/tiny.gguf") == TWO
    assert files.asked("/tiny.gguf")[-1] is None


@pytest.mark.parametrize(("honours_ranges", "has_tags"), [(False, True), (True, False), (False, False)])
def test_a_server_without_ranges_or_tags_is_no_obstacle(
    store: ModelStore, files: Files, honours_ranges: bool, has_tags: bool
) -> None:
    files.honours_ranges, files.has_tags = honours_ranges, has_tags
    files.files["/tiny.gguf"], files.break_after = ONE, 100_000
    with pytest.raises(ModelLoadFailed, match="broke off"):
        bring(store, f"{files.url}/tiny.gguf")
    files.break_after = None
    assert bring(store, f"{files.url}/tiny.gguf") == ONE


def test_the_folder_of_a_version_behind_any_web_server_is_a_mirror(
    store: ModelStore, files: Files, tmp_path: Path
) -> None:
    original = pull(ModelStore(tmp_path / "published"), LocalModel(mlx_folder()), "small")
    for path in original.folder.rglob("*"):
        if path.is_file():
            files.files[f"/models/small/{path.relative_to(original.folder).as_posix()}"] = path.read_bytes()
    got = pull(store, source_of(f"{files.url}/models/small/version.json", store.root))
    assert (got.name, got.kind, got.version.id) == ("small", "mlx", original.version.id)
    assert verify(got) == []
    files.files["/models/small/files/tokenizer.json"] = b"{}"
    other = ModelStore(tmp_path / "other")
    with pytest.raises(ModelLoadFailed, match=r"tokenizer.json has 2 bytes and not the \d+ that were announced"):
        pull(other, source_of(f"{files.url}/models/small/version.json", other.root))


def test_a_list_that_leads_out_of_the_folder_is_refused(store: ModelStore, files: Files) -> None:
    file = {"path": "../../x.gguf", "size": 1, "sha256": "0" * 64}
    files.files["/x/version.json"] = json.dumps({"kind": "gguf", "files": [file], "source": "x"}).encode()
    with pytest.raises(ModelLoadFailed, match=r"files\.0\.path: .*leads out of the model's folder"):
        bring(store, f"{files.url}/x/version.json")


def test_all_parts_of_a_split_file_come(store: ModelStore, files: Files, tmp_path: Path) -> None:
    for number in (1, 2):
        files.files[f"/big-{number:05}-of-00002.gguf"] = ONE + bytes([number])
    got = pull(store, source_of(f"{files.url}/big-00001-of-00002.gguf", store.root))
    assert (got.name, [file.path for file in got.version.files]) == (
        "big",
        ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"],
    )
    assert got.path.name == "big-00001-of-00002.gguf"
    again = pull(store, LocalModel(got.path), "big")
    assert again.version.id == got.version.id


def test_what_ollama_keeps_beside_a_model_lies_beside_it(store: ModelStore, files: Files) -> None:
    layers = {"model": ONE, "template": b"{{ .Prompt }}", "params": b'{"stop": ["x"]}', "projector": TWO}
    files.add_ollama("me/tiny", layers, "1b")
    got = pull(store, source_of(f"ollama:{files.url}/me/tiny:1b", store.root))
    assert (got.name, got.path.name, got.path.read_bytes()) == ("me/tiny:1b", "model.gguf", ONE)
    assert {path.name: path.read_bytes() for path in got.files.iterdir() if path != got.path} == {
        "template.txt": b"{{ .Prompt }}",
        "params.json": b'{"stop": ["x"]}',
        "mmproj.gguf": TWO,
    }
    assert got.projector == got.files / "mmproj.gguf"
    assert [*got.not_used] == ["template.txt", "params.json"]


def test_a_projector_of_the_hub_comes_with_its_model_and_all_parts_of_a_split_one(store: ModelStore, hub: Hub) -> None:
    hub.files = {
        "see-Q8_0-00001-of-00002.gguf": ONE,
        "see-Q8_0-00002-of-00002.gguf": TWO,
        "see-Q4_0.gguf": TWO,
        "mmproj-F32.gguf": TWO + b"f32",
        "mmproj-F16.gguf": TWO + b"f16",
    }
    got = pull(store, source_of("hf:owner/model:Q8_0", store.root))
    assert [file.path for file in got.version.files] == [
        "see-Q8_0-00001-of-00002.gguf",
        "see-Q8_0-00002-of-00002.gguf",
        "mmproj-F16.gguf",
    ]
    found = find("hf:owner/model:Q8_0", LoadSettings(downloads=store.root))
    assert (found.path, found.projector) == (got.path, got.files / "mmproj-F16.gguf")
    del hub.files["see-Q8_0-00002-of-00002.gguf"]
    with pytest.raises(ModelLoadFailed, match=r"is one of 2 parts, and see-Q8_0-00002-of-00002\.gguf is not there"):
        pull(store, source_of("hf:owner/model:Q8_0", store.root))


def test_an_imported_model_brings_the_projector_beside_it(store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "see-Q8_0.gguf").write_bytes(ONE)
    (tmp_path / "mmproj-see-f16.gguf").write_bytes(TWO)
    got = pull(store, LocalModel(tmp_path / "see-Q8_0.gguf"))
    assert (got.path.name, got.projector) == ("see-Q8_0.gguf", got.files / "mmproj-see-f16.gguf")


def test_sources_that_are_not_there_or_no_models_are_told_in_words(store: ModelStore, files: Files) -> None:
    files.add_ollama("library/tensors", {"tensor": b"x"})
    files.files["/v2/library/odd/manifests/latest"] = b"{}"
    files.files["/page.gguf"] = b"<html>" * 1000
    for source, words in {
        f"{files.url}/none.gguf": "there is nothing at .*none.gguf, or not for us",
        f"{files.url}/none/version.json": "there is nothing at .*version.json",
        f"{files.url}/page.gguf": "page.gguf of .* is not a GGUF file; nothing changed",
        f"{files.url}/model.bin": "neither a GGUF file nor the version.json of a mirror",
        f"{files.url}/a.gguf#md5=1": "is not sha256= and 64 hex digits",
        f"ollama:{files.url}/library/none": "there is nothing at .*/v2/library/none/manifests/latest",
        f"ollama:{files.url}/library/tensors": "has no model in GGUF; it consists of .*image.tensor",
        f"ollama:{files.url}/library/odd": "what the registry says of it is no manifest",
        "ollama:": "is not of the form ollama:MODEL",
        "http://127.0.0.1:9/a.gguf": "cannot be reached",
    }.items():
        with pytest.raises(ModelLoadFailed, match=words):
            bring(store, source)
    assert store.available() == []


def test_ollamas_names_are_read_as_ollama_reads_them(tmp_path: Path) -> None:
    names = ["qwen3", "qwen3:4b", "qwen3:latest", "me/tiny:1b", "hf.co/me/tiny:q4", "http://127.0.0.1:5000/a/b:c"]
    assert [model_id(f"ollama:{name}") for name in names] == [
        "qwen3",
        "qwen3:4b",
        "qwen3",
        "me/tiny:1b",
        "me/tiny:q4",
        "a/b:c",
    ]


def test_a_file_that_is_stored_already_is_not_fetched_again(store: ModelStore, files: Files) -> None:
    files.add_ollama("library/one", {"model": ONE})
    files.add_ollama("library/two", {"model": ONE, "system": b"Be kind."})
    bring(store, f"ollama:{files.url}/library/one")
    assert bring(store, f"ollama:{files.url}/library/two") == ONE
    assert len(files.asked(f"/cdn/sha256:{hashlib.sha256(ONE).hexdigest()}")) == 1


def test_a_model_of_another_source_does_not_become_a_version_by_chance(
    store: ModelStore, files: Files, tmp_path: Path
) -> None:
    files.add_ollama("library/tiny", {"model": ONE})
    (tmp_path / "tiny.gguf").write_bytes(TWO)
    bring(store, f"ollama:{files.url}/library/tiny")
    with pytest.raises(Conflict, match=r"tiny is stored already, from ollama:.*give this one another name with --as"):
        pull(store, LocalModel(tmp_path / "tiny.gguf"))
    assert pull(store, LocalModel(tmp_path / "tiny.gguf"), "tiny").path.read_bytes() == TWO
    assert len(store.versions("tiny")) == 2


def test_what_may_not_be_loaded_is_refused_before_it_comes(store: ModelStore, files: Files) -> None:
    files.files["/tiny.gguf"] = ONE

    def refuse(offer: Offer) -> None:
        raise ModelLoadFailed(f"not {offer.bytes} bytes")

    with pytest.raises(ModelLoadFailed, match=f"not {len(ONE)} bytes"):
        pull(store, source_of(f"{files.url}/tiny.gguf", store.root), accept=refuse)
    assert files.asked("/tiny.gguf") == []


def test_an_imported_file_is_linked_or_copied(store: ModelStore, tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(ONE)
    linked = pull(store, LocalModel(file), "linked")
    copied = pull(store, LocalModel(file, links=False), "copied")
    assert linked.path.samefile(file)
    assert not copied.path.samefile(file)
    assert copied.path.read_bytes() == ONE


def test_two_who_want_the_same_model_fetch_it_once(store: ModelStore, files: Files) -> None:
    files.files["/tiny.gguf"], files.stand_still_at = ONE, 1000
    found: list[bytes | TenutoError] = []

    def want() -> None:
        try:
            found.append(ensure(store, source_of(f"{files.url}/tiny.gguf", store.root)).path.read_bytes())
        except TenutoError as error:
            found.append(error)

    threads = [threading.Thread(target=want) for _ in range(2)]
    for thread in threads:
        thread.start()
    files.go_on.set()
    for thread in threads:
        thread.join(HANGS_S)
    assert found == [ONE, ONE]
    assert len(files.asked("/tiny.gguf")) == 1


CHILD = """
import sys
from pathlib import Path
from tenuto.pipelines.model_store import ModelStore, pull, source_of
store = ModelStore(Path(sys.argv[1]))
pull(store, source_of(sys.argv[2], store.root), tell=lambda each: print(each.phase, each.done, flush=True))
"""


@pytest.mark.parametrize("kind", ["mirror", "ollama"])
def test_a_download_that_is_killed_goes_on_at_the_byte_where_it_was(
    store: ModelStore, files: Files, hub: Hub, kind: str
) -> None:
    source = Source(kind, files, hub)
    assert bring(store, source.named) == ONE
    [before] = store.available()
    source.has(TWO)
    files.stand_still_at = 65_536
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store.root), source.named], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if line == "fetching 65536\n":
            child.kill()
    assert child.wait(HANGS_S) == -9
    assert store.available() == [before]
    assert verify(before) == []
    files.stand_still_at = None
    files.go_on.set()
    assert bring(store, source.named) == TWO
    assert [wanted for method, _, wanted in files.requests if method == "GET" and wanted][-1] == "bytes=65536-"
