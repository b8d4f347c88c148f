"""`tenuto doctor` in a real terminal and for programs: what it finds broken, and what it says to do."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.forked import program
from tests.e2e.server import environment, script
from tests.patience import HANGS_S
from tests.pipelines.tiny_adapter import tiny_adapter
from tests.pipelines.tiny_llama import tiny_llama
from tests.pipelines.tiny_vision import tiny_vision
from tests.terminal.screen import Terminal

pytestmark = pytest.mark.slow
pytest.importorskip("llama_cpp")

PAD = {"command": sys.executable, "args": [str(Path(__file__).parent / "pad.py")]}
BROKEN = {"command": sys.executable, "args": ["-c", "raise SystemExit('no database at db.example')"]}
GONE = {"command": "no-such-command-anywhere"}


def config(folder: Path, **servers: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def asked(home: Path, *arguments: str, variables: Mapping[str, str] = {}) -> tuple[int, dict[str, Any], str]:
    """The doctor for programs: exit code, sections by title, stderr."""
    ended = subprocess.run(
        program("doctor", "--json", *arguments),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env={**environment(home), **variables},
        cwd=home,
        check=False,
    )
    report = json.loads(ended.stdout)
    assert report["ok"] == (ended.returncode == 0)
    return ended.returncode, {section["title"]: section for section in report["sections"]}, ended.stderr


def test_a_broken_mcp_server_is_shown_with_its_stderr_and_what_to_do(tmp_path: Path) -> None:
    path = config(tmp_path, pad=PAD, broken=BROKEN, gone=GONE)
    with Terminal(tmp_path, "doctor", "--data-dir", "data", "--mcp-config", str(path)) as terminal:
        assert terminal.exit_code() == 1
        screen = terminal.text
    healthy, broken = screen.index("MCP server pad"), screen.index("MCP server broken")
    assert "tools: 1: write" in screen[healthy:broken]
    assert "✗" not in screen[healthy:broken]
    gone = screen.index("MCP server gone")
    assert "| no database at db.example" in screen[broken:gone]
    assert "→ see its last lines above" in screen[broken:gone]
    assert "→ install `no-such-command-anywhere`, or correct `command`" in screen[gone:]
    assert "broken: MCP server broken, MCP server gone" in screen


def test_without_a_server_it_measures_the_embedded_model_alone(tmp_path: Path, embedded_model: str) -> None:
    code, sections, stderr = asked(tmp_path, "--data-dir", "data", "--model", embedded_model)
    assert (code, stderr) == (0, "")
    assert sections["data folder"]["facts"]["owner"] == "nobody"
    facts = sections["model embedded"]["facts"]
    assert facts["tool calls"] is True
    assert facts["backend"]
    assert facts["requests"] == "computed together"
    if embedded_model == "embedded:gguf":
        assert facts["threads"].split(",")[0].isdecimal()
        assert facts["threads wait"] == "spin 2000 times, then sleep"
    assert int(facts["prefill"].split()[0]) > 0
    assert int(facts["decode"].split()[0]) > 0
    assert sections["installed"]["facts"]["llama-cpp-python"]
    assert not (tmp_path / "data").exists()


def test_a_running_server_is_asked_for_its_models_and_mcp_servers(start: Start, tmp_path: Path) -> None:
    path = config(tmp_path, pad=PAD, broken=BROKEN)
    server = start("--mcp-config", str(path))
    code, sections, _ = asked(server.folder, "--data-dir", str(server.data_dir))
    assert code == 1
    assert sections["server"]["facts"] == {"url": server.url, "/health": "ok", "/ready": "ready"}
    facts = sections["model model"]["facts"]
    assert facts["backend"] == "a script"
    assert [place.split()[0] for place in facts["caches now"].split(", ")] == ["device", "host", "disk"]
    assert {facts[name] for name in ("caches moved", "caches on disk")} == {"none"}
    assert sections["speed of the embedded model"]["facts"]["decode"]
    assert sections["MCP server pad"]["problems"] == []
    assert "no database at db.example" in sections["MCP server broken"]["lines"]
    assert sections["MCP server broken"]["problems"][0]["remedy"]


def test_the_plan_of_a_model_is_told_and_why_one_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    flags = ("--data-dir", "data", "--model", "embedded:gguf")
    variables = {"TENUTO_SLOTS": "2", "TENUTO_CACHE_TYPE": "q8_0", "TENUTO_HOST_CACHE_BYTES": "1MiB"}
    code, sections, _ = asked(tmp_path, *flags, variables=variables)
    facts = sections["model embedded"]["facts"]
    assert (code, facts["type of the cache"], facts["less than with more memory"]) == (0, "q8_0", [])
    assert "weights 4.2 MiB, cache 38.2 MiB" in facts["planned memory"]
    code, sections, _ = asked(tmp_path, *flags, variables={"TENUTO_SLOTS": "256", "TENUTO_CONTEXT": "262144"})
    (problem,) = sections["model embedded"]["problems"]
    assert code == 1
    assert "it does not fit into memory: 256 x 262144 tokens of q4_0 take" in problem["what"]
    assert problem["what"].endswith("x 4096 tokens of f16 would fit")
    assert "--context" in problem["remedy"]


def test_models_that_cannot_be_loaded_are_named_with_what_to_do(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.gguf"
    rubbish.write_bytes(b"no model at all")
    good = script(tmp_path / "good.json")
    names = ("--model", str(rubbish), "--model", "missing.gguf", "--model", good)
    code, sections, _ = asked(tmp_path, "--data-dir", "data", *names)
    assert code == 1
    assert sections["model rubbish"]["problems"][0]["what"].endswith("is not a GGUF file")
    assert "whole GGUF file" in sections["model rubbish"]["problems"][0]["remedy"]
    assert "there is no model file missing.gguf" in sections["model missing"]["problems"][0]["what"]
    assert sections["model good"]["facts"]["slots"] == "4 of 4096 tokens"


def test_a_model_whose_caches_cannot_batch_is_said_to_be_served_one_at_a_time(start: Start) -> None:
    server = start(can_batch=False)
    with server.client() as http:
        (model,) = http.get("/v1/models").raise_for_status().json()["data"]
    assert (model["backend"], model["can_batch"]) == ("a script", False)
    _, served, _ = asked(server.folder, "--data-dir", str(server.data_dir))
    _, loaded, _ = asked(server.folder, "--data-dir", "other", "--model", server.model)
    for sections in (served, loaded):
        facts = sections["model model"]["facts"]
        assert facts["requests"] == "served one at a time: this model's cache cannot be batched"
        assert facts["backend"] == "a script"


def test_a_named_projector_is_tried_with_the_first_model(tmp_path: Path) -> None:
    files = tiny_vision(tmp_path, "square")
    elsewhere = files.projector.rename(tmp_path / "elsewhere.gguf")
    named = ("--data-dir", "data", "--model", str(files.model))
    _, blind, _ = asked(tmp_path, *named)
    assert blind["model tiny-square"]["facts"]["reads"] == ["text"]
    code, seeing, _ = asked(tmp_path, *named, "--mmproj", str(elsewhere))
    assert code == 0
    assert seeing["model tiny-square"]["facts"]["reads"] == ["image", "text"]
    code, wrong, _ = asked(tmp_path, *named, "--mmproj", str(files.model))
    assert code == 1
    assert "cannot be loaded as the projector" in wrong["model tiny-square"]["problems"][0]["what"]


def test_adapters_are_told_with_the_models_that_they_fit(tmp_path: Path) -> None:
    base = tiny_llama(tmp_path / "base.gguf")
    terse = tiny_adapter(tmp_path / "terse.gguf", base)
    other = tiny_adapter(tmp_path / "other.gguf", base, architecture="qwen3")
    named = ("--data-dir", "data", "--model", f"{base}+terse", "--lora", f"terse={terse}@0.5")
    code, found, _ = asked(tmp_path, *named)
    assert code == 0
    assert found["model base+terse"]["facts"]["adapter"].endswith("rank 4, alpha 8, scale 0.5")
    assert found["adapter terse"]["facts"]["fits"] == [f"{base}+terse"]
    code, found, _ = asked(tmp_path, *named, "--lora", f"other={other}")
    assert code == 1
    assert "adapts models of the architecture 'qwen3'" in found["adapter other"]["problems"][0]["what"]


def test_an_mcp_file_that_is_none_is_a_finding_and_not_an_end(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{")
    code, sections, _ = asked(tmp_path, "--data-dir", "data", "--mcp-config", str(path))
    assert code == 1
    assert str(path) in sections["MCP configuration"]["problems"][0]["what"]


def test_a_data_folder_that_is_a_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "lock-me").mkdir()
    (tmp_path / "lock-me" / "lock").mkdir()
    code, sections, _ = asked(tmp_path, "--data-dir", "lock-me")
    assert code == 1
    assert "choose another folder with --data-dir" in sections["data folder"]["problems"][0]["remedy"]
