"""Servers that lie, refuse, stumble and send elsewhere: nothing of it changes a model or leads out of its folder."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store import ModelStore, StoredModel, pull, source_of
from tenuto.pipelines.model_store.records import StoredFile, Version, dumped, read_version
from tests.pipelines.hub import Hub
from tests.pipelines.model_store.servers import Files

ONE = b"GGUF" + bytes(range(256)) * 1000
TWO = b"GGUF" + bytes(reversed(range(256))) * 1000


def brought(store: ModelStore, source: str) -> StoredModel:
    return pull(store, source_of(source, store.root))


def refused(store: ModelStore, source: str, words: str) -> None:
    before = store.available()
    with pytest.raises(ModelLoadFailed, match=words):
        brought(store, source)
    assert store.available() == before


def listed(files: Files, *each: tuple[str, int, str], kind: str = "gguf") -> str:
    found = [{"path": path, "size": size, "sha256": digest} for path, size, digest in each]
    files.files["/x/version.json"] = json.dumps({"kind": kind, "files": found, "source": "x"}).encode()
    return f"{files.url}/x/version.json"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_cannot_answer_now_is_asked_again(store: ModelStore, files: Files, status: int) -> None:
    files.files["/tiny.gguf"] = ONE
    files.add_ollama("library/tiny", {"model": TWO})
    digest = hashlib.sha256(TWO).hexdigest()
    files.answers = {
        "/tiny.gguf": [(status, {"Retry-After": "0"}), (status, {})],
        "/v2/library/tiny/manifests/latest": [(status, {})],
        f"/cdn/sha256:{digest}": [(status, {})],
    }
    # A look and a download are asked again once each, as the tests have it.
    files.answers["/tiny.gguf"].pop()
    assert brought(store, f"{files.url}/tiny.gguf").path.read_bytes() == ONE
    files.answers["/tiny.gguf"] = []
    files.files["/other.gguf"] = TWO
    assert brought(store, f"{files.url}/other.gguf").path.read_bytes() == TWO
    store.remove("tiny")
    assert brought(store, f"ollama:{files.url}/library/tiny").path.read_bytes() == TWO


def test_a_kept_connection_that_is_found_closed_costs_no_try(store: ModelStore, files: Files) -> None:
    files.files["/tiny.gguf"], files.closes_kept = ONE, True
    files.add_ollama("library/tiny", {"model": TWO})
    blob = f"/cdn/sha256:{hashlib.sha256(TWO).hexdigest()}"
    # Each is asked again once, where it can be over the connection that brought the refusal; that is closed by then.
    files.answers = {path: [(503, {})] for path in ("/tiny.gguf", "/v2/library/tiny/manifests/latest", blob)}
    assert brought(store, f"{files.url}/tiny.gguf").path.read_bytes() == ONE
    store.remove("tiny")
    assert brought(store, f"ollama:{files.url}/library/tiny").path.read_bytes() == TWO
    assert files.closed


def test_a_new_connection_that_is_closed_without_an_answer_costs_one(
    store: ModelStore, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.pipelines.model_store.download.WAITS_S", ())
    files.files["/tiny.gguf"], files.closes_new = ONE, 1
    refused(store, f"{files.url}/tiny.gguf", "cannot be reached: Server disconnected")
    assert brought(store, f"{files.url}/tiny.gguf").path.read_bytes() == ONE


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500])
def test_a_server_that_refuses_is_told_in_words_whatever_it_was_asked_for(
    store: ModelStore, files: Files, status: int
) -> None:
    files.files["/tiny.gguf"] = ONE
    files.add_ollama("library/tiny", {"model": ONE})
    digest = hashlib.sha256(ONE).hexdigest()
    words = f"(not for us|the server answers {status}|broke off and can be resumed: the server answers {status})"
    for path, source in {
        "/tiny.gguf": f"{files.url}/tiny.gguf",
        "/v2/library/tiny/manifests/latest": f"ollama:{files.url}/library/tiny",
        f"/cdn/sha256:{digest}": f"ollama:{files.url}/library/tiny",
    }.items():
        files.answers = {path: [(status, {})] * 9}
        refused(store, source, words)
        assert files.answers[path], "it was asked without end"


@pytest.mark.parametrize("length", ["-1", "x", "", "9" * 5000, str(10**17), str(10**15)])
def test_a_length_that_can_be_none_is_told_in_words(store: ModelStore, files: Files, length: str) -> None:
    files.files["/tiny.gguf"], files.lengths["/tiny.gguf"] = ONE, length
    words = "does not say how large it is|lists what cannot be stored|GB more in|cannot be reached"
    refused(store, f"{files.url}/tiny.gguf", words)


def test_a_page_of_another_length_does_not_replace_what_has_come(store: ModelStore, files: Files) -> None:
    files.add_ollama("library/tiny", {"model": ONE})
    path = f"/cdn/sha256:{hashlib.sha256(ONE).hexdigest()}"
    files.break_after = 100_000
    refused(store, f"ollama:{files.url}/library/tiny", "broke off and can be resumed")
    files.break_after, files.honours_ranges = None, False
    files.files[path] = b"<html>log in here</html>"
    refused(store, f"ollama:{files.url}/library/tiny", "has 24 bytes and not the 256004 that were announced")
    files.honours_ranges, files.files[path] = True, ONE
    assert brought(store, f"ollama:{files.url}/library/tiny").path.read_bytes() == ONE
    assert files.asked(path)[-1] == "bytes=100000-"


def test_a_range_that_cannot_be_had_begins_anew(store: ModelStore, files: Files) -> None:
    files.add_ollama("library/tiny", {"model": ONE})
    path = f"/cdn/sha256:{hashlib.sha256(ONE).hexdigest()}"
    files.break_after = 100_000
    refused(store, f"ollama:{files.url}/library/tiny", "broke off")
    files.break_after = None
    files.answers[path] = [(416, {"Content-Range": f"bytes */{len(ONE)}"})]
    assert brought(store, f"ollama:{files.url}/library/tiny").path.read_bytes() == ONE
    assert files.asked(path)[-2:] == ["bytes=100000-", None]


def test_an_untagged_file_that_changed_between_two_tries_is_not_a_mixture(store: ModelStore, files: Files) -> None:
    files.has_tags = False
    files.files["/tiny.gguf"], files.break_after = ONE, 100_000
    refused(store, f"{files.url}/tiny.gguf", "broke off")
    files.files["/tiny.gguf"], files.break_after = TWO, None
    assert brought(store, f"{files.url}/tiny.gguf").path.read_bytes() == TWO


def test_a_file_that_changes_while_it_comes_is_refused(store: ModelStore, files: Files) -> None:
    files.files["/tiny.gguf"] = ONE
    files.answers["/tiny.gguf"] = [(200, {"Content-Length": str(len(ONE)), "ETag": '"before"'})]
    refused(store, f"{files.url}/tiny.gguf", "has changed since it was looked at; pull it again")
    assert brought(store, f"{files.url}/tiny.gguf").path.read_bytes() == ONE


@pytest.mark.parametrize(
    "path",
    ["../../x", "/etc/x", "a/../../x", "a\\x", "C:x", "a\0b", "a\nb", "\x1b[2Jx", "n" * 256, "\u202egguf", "."],
)
def test_no_name_in_a_list_leads_out_of_the_folder_or_deceives(store: ModelStore, files: Files, path: str) -> None:
    refused(store, listed(files, (path, 1, "0" * 64)), r"files\.0\.path: .*(leads out of the model's folder|at most)")
    assert not [each for each in store.root.rglob("*") if each.is_file() and each.suffix != ".lock"]


@pytest.mark.parametrize("paths", [("a.gguf", "A.GGUF"), ("a.gguf", "a.gguf"), ("a", "a/b"), ("\u00e9", "e\u0301")])
def test_no_two_files_of_a_list_have_one_place(store: ModelStore, files: Files, paths: tuple[str, str]) -> None:
    digest = hashlib.sha256(ONE).hexdigest()
    refused(store, listed(files, *((path, len(ONE), digest) for path in paths)), "is the place of two files")


def test_a_list_of_files_that_make_no_model_is_refused_before_they_come(store: ModelStore, files: Files) -> None:
    digest = hashlib.sha256(ONE).hexdigest()
    files.files["/x/files/model.safetensors"] = ONE
    source = listed(files, ("model.safetensors", len(ONE), digest), kind="mlx")
    refused(store, source, r"lists no MLX model: it has no config\.json")
    refused(store, listed(files), "files: .*at least 1 item")
    refused(store, listed(files, ("a.gguf", -1, digest)), r"files\.0\.size")
    refused(store, listed(files, ("a.gguf", 1, "../" * 20)), r"files\.0\.sha256")
    assert not files.asked("/x/files/model.safetensors")


def test_a_hub_that_names_paths_as_digests_or_commits_is_refused(store: ModelStore, hub: Hub, tmp_path: Path) -> None:
    hub.files = {"tiny-Q8_0.gguf": ONE}
    hub.listed_sha = {"tiny-Q8_0.gguf": f"/../../../../../../../..{tmp_path}/out"}
    refused(store, "hf:owner/model", r"lists what cannot be stored: 0\.sha256")
    hub.listed_sha, hub.commit = {}, f"../../../../../../..{tmp_path}/out"
    refused(store, "hf:owner/model", "does not say which commit it is at")
    hub.commit, hub.files = "ab" * 20, {"tiny-Q8_0\x1b[2J.gguf": ONE, "\ud800-Q4_0.gguf": ONE}
    refused(store, "hf:owner/model", "has no GGUF file")
    assert not (tmp_path / "out").exists()


def test_a_redirect_takes_no_password_and_no_token_to_another_host(
    store: ModelStore, files: Files, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = files.server_address[1]
    files.files["/cdn/tiny.gguf"] = ONE
    files.moved["/tiny.gguf"] = f"http://localhost:{port}/cdn/tiny.gguf"
    got = brought(store, f"http://me:secret@127.0.0.1:{port}/tiny.gguf")
    basic = f"Basic {base64.b64encode(b'me:secret').decode()}"
    assert set(files.authorizations) == {(f"127.0.0.1:{port}", basic), (f"localhost:{port}", None)}
    assert got.version.source == f"{files.url}/tiny.gguf"
    kept = [path for path in store.root.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
    assert kept == [], "a password was kept"
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.files = {"tiny-Q8_0.gguf": TWO}
    brought(store, "hf:owner/model")
    seen = {(path.split("/")[1], token) for path, token in hub.tokens}
    assert ("files", None) in seen
    assert not [each for each in seen if each[0] == "files" and each[1]]


def test_a_password_of_a_url_is_in_no_error(store: ModelStore, files: Files) -> None:
    port = files.server_address[1]
    files.files["/tiny.gguf"], files.break_after = ONE, 100_000
    for path in ("/none.gguf", "/none/version.json", "/tiny.gguf", "/tiny.bin", "/tiny.gguf#md5=1"):
        with pytest.raises(ModelLoadFailed) as raised:
            brought(store, f"http://me:secret@127.0.0.1:{port}{path}")
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://", "http://[::1", "ftp://x/y", "/tiny.gguf", "http://127.0.0.1:9/x"]
)
def test_a_redirect_to_nowhere_is_told_in_words(store: ModelStore, files: Files, location: str) -> None:
    files.files["/tiny.gguf"], files.moved["/tiny.gguf"] = ONE, location
    refused(store, f"{files.url}/tiny.gguf", "cannot be reached|cannot be read")


@pytest.mark.parametrize(
    "source",
    [
        "http://[::1/a.gguf",
        "http://h:99999999/a.gguf",
        "http://h/\0.gguf",
        "https:///a.gguf",
        "http://" + "a" * 300 + "/a.gguf",
        "http://\u2024/a.gguf",
        "ollama:http://h:99999999/a/b",
        "ollama:" + "a" * 500,
        "ollama:../../x",
        "ollama:a/../b",
        "hf:../x",
        "hf:a/b/c",
        "hf:a/b\n",
        "http://127.0.0.1:9/%2e%2e%2fx.gguf",
        "http://127.0.0.1:9/a@abcd.gguf",
        "http://127.0.0.1:9/CON\u00e9.gguf",
    ],
)
def test_hostile_sources_are_refused_in_words_and_leave_nothing(store: ModelStore, source: str) -> None:
    with pytest.raises(ModelLoadFailed):
        brought(store, source)
    assert [path for path in store.root.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_the_digests_of_a_version_cannot_be_forged_by_the_names_of_its_files() -> None:
    one = Version("gguf", (StoredFile("a", 1, "0" * 64), StoredFile("b", 1, "1" * 64)), "x")
    forged = Version("gguf", (StoredFile(f"a\0{'0' * 64}\nb", 1, "1" * 64),), "x")
    assert one.digest == forged.digest
    with pytest.raises(ModelLoadFailed, match="leads out of"):
        read_version(dumped(forged), "x")
