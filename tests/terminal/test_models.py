"""`tenuto models`, as a person or a program calls it, against servers of the tests' own."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.forked import program
from tests.e2e.server import Server, environment
from tests.embedded import gguf_file, mlx_folder
from tests.patience import HANGS_S
from tests.pipelines.model_store.servers import Files, serving

pytestmark = pytest.mark.slow

ONE, TWO = b"GGUF" + b"1" * 5000, b"GGUF" + b"2" * 5000


def models(home: Path, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        program("models", *arguments),
        input=text,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env=environment(home),
        cwd=home,
        check=False,
    )


def test_a_model_is_pulled_listed_verified_rolled_back_and_removed(tmp_path: Path) -> None:
    with serving(Files()) as server:
        server.add_ollama("library/tiny", {"model": ONE})
        source = f"ollama:{server.url}/library/tiny"
        assert models(tmp_path, "pull", source).stdout.startswith("tiny@")
        server.add_ollama("library/tiny", {"model": TWO})
        told = models(tmp_path, "pull", "tiny", "--json").stdout  # what is stored knows where it is from
    lines = [json.loads(line) for line in told.splitlines()]
    assert [line["status"].partition(" ")[0] for line in (lines[0], lines[-2], lines[-1])] == [
        "pulling",
        "writing",
        "success",
    ]
    assert {(line["total"], line["completed"]) for line in lines if line.get("completed")} == {(5004, 5004)}
    [listed] = json.loads(models(tmp_path, "list", "--json").stdout)
    assert (listed["name"], listed["versions"], listed["version"]) == ("tiny", 2, lines[-1]["model"]["version"])
    assert listed["version"] in models(tmp_path, "list").stdout
    assert models(tmp_path, "verify").stdout == f"tiny@{listed['version']}: whole, 4.9 KiB read\n"
    Path(listed["path"]).write_bytes(ONE)
    damaged = models(tmp_path, "verify", "tiny")
    assert damaged.returncode == 1
    assert "model.gguf: the file has another content" in damaged.stdout
    back = json.loads(models(tmp_path, "rollback", "tiny", "--json").stdout)
    assert Path(back["path"]).read_bytes() == ONE
    assert models(tmp_path, "rm", "tiny").returncode == 1, "nobody has said yes"
    assert models(tmp_path, "rm", f"tiny@{listed['version']}", "tiny", "--yes").stdout.count("removed tiny@") == 2
    assert models(tmp_path, "list", "--json").stdout == "[]\n"


def test_an_error_of_a_pull_is_a_line_for_programs_and_a_sentence_for_people(tmp_path: Path) -> None:
    with serving(Files()) as server:
        asked = f"{server.url}/none.gguf"
        for_people, for_programs = models(tmp_path, "pull", asked), models(tmp_path, "pull", asked, "--json")
    assert (for_people.returncode, for_programs.returncode) == (1, 1)
    assert for_people.stderr == f"tenuto: there is nothing at {asked}, or not for us (status 404)\n"
    assert json.loads(for_programs.stdout.splitlines()[-1])["code"] == "model_load_failed"


def test_what_a_model_is_can_be_seen_without_loading_it(tmp_path: Path) -> None:
    assert models(tmp_path, "import", str(gguf_file()), "--as", "me/small:q8").returncode == 0
    shown = json.loads(models(tmp_path, "show", "me/small:q8", "--json").stdout)
    folder = json.loads(models(tmp_path, "show", str(mlx_folder()), "--json").stdout)
    facts = ("architecture", "context", "parameters", "chat_template")
    assert [shown[name] for name in facts] == [folder[name] for name in facts]
    assert (shown["quantisation"], folder["quantisation"]) == ("Q8_0", "8 bits")
    assert "quantisation: Q8_0" in models(tmp_path, "show", "me/small:q8").stdout


def test_a_damaged_model_is_told_from_a_missing_one_and_an_unsupported_one(tmp_path: Path) -> None:
    whole = gguf_file().read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "new.gguf").write_bytes(b"GGUF" + (9).to_bytes(4, "little") + whole[8:])
    (tmp_path / "text.gguf").write_bytes(b"hello" * 100)
    for name, words in {
        "cut.gguf": "is damaged: it ",
        "new.gguf": "has version 9 of the format, which is not supported",
        "text.gguf": "is not a GGUF file",
        "none.gguf": "there is no model file",
        "none": "there is no model file none, and no stored model of that name",
    }.items():
        ran = models(tmp_path, "show", name)
        assert (ran.returncode, words in ran.stderr) == (1, True), ran.stderr


def test_a_stored_model_is_served_by_its_name_and_not_removed_meanwhile(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    shutil.copy(gguf_file(), tmp_path / "mine.gguf")
    assert models(tmp_path, "import", str(tmp_path / "mine.gguf")).returncode == 0
    (tmp_path / "mine.gguf").unlink()
    server = Server(tmp_path, "mine").start()
    try:
        with server.client() as client:
            assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["mine"]
        refused = models(tmp_path, "rm", "mine", "--yes")
        assert refused.returncode == 1
        assert "is loaded by a server or another process" in refused.stderr
    finally:
        server.close()
    assert models(tmp_path, "rm", "mine", "--yes").returncode == 0


def test_a_model_is_quantised_in_a_process_of_its_own_and_stored(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    whole = str(gguf_file())
    refused = models(tmp_path, "quantize", whole, "Q4_0")
    assert refused.returncode == 1
    assert "requantizing from type q8_0 is disabled" in refused.stderr
    unknown = models(tmp_path, "quantize", whole, "Q77")
    assert "llama.cpp makes no quantisation Q77; it makes" in unknown.stderr
    made = json.loads(models(tmp_path, "quantize", whole, "q4_0", "--requantize", "--json").stdout)
    assert made["name"] == f"{gguf_file().stem}:Q4_0"
    shown = json.loads(models(tmp_path, "show", made["name"], "--json").stdout)
    assert shown["quantisation"] == "Q4_0"
    assert shown["bytes"] < gguf_file().stat().st_size
    assert [*tmp_path.rglob("making/*")] == []


def test_a_folder_is_converted_by_mlx_lm_and_stored(tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm")
    ran = models(tmp_path, "convert", str(mlx_folder()), "--bits", "0", "--as", "converted", "--json")
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(models(tmp_path, "show", "converted", "--json").stdout)
    assert (shown["kind"], shown["architecture"]) == ("mlx", "llama")
