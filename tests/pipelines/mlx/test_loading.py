"""MLX models from folders and from the Hub, and one clear message for each that is not whole."""

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")

import mlx.core as mx

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.loader import LoadSettings, find, load
from tests.embedded import mlx_folder
from tests.patience import HANGS_S
from tests.pipelines.hub import Hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model, in a folder with a point in its name."""
    path = tmp_path / "Tiny-1.4M"
    shutil.copytree(mlx_folder(), path)
    return path


def closed(pipeline: Pipeline) -> Pipeline:
    pipeline.backend.close()
    return pipeline


def test_a_folder_loads_and_is_called_by_its_name(folder: Path, settings: LoadSettings) -> None:
    pipeline = closed(load(str(folder), settings))
    assert pipeline.codec.info.model == "Tiny-1.4M"
    assert pipeline.codec.info.vocabulary == json.loads((folder / "config.json").read_text())["vocab_size"]
    assert (pipeline.backend.info.slots, pipeline.backend.info.cells) == (1, 256)
    assert pipeline.backend.info.runs_on.startswith("MLX on ")
    assert pipeline.defaults == Pipeline(pipeline.codec, pipeline.backend).defaults


def test_slots_and_cells_keep_within_the_cache(folder: Path) -> None:
    info = closed(load(str(folder), LoadSettings(cache_bytes=8 << 20))).backend.info
    assert info.slots * info.cells * info.bytes_per_token <= 8 << 20
    assert info.slots > 0
    assert info.context <= json.loads((folder / "config.json").read_text())["max_position_embeddings"]


def with_shards(folder: Path) -> Path:
    """The same weights in two files with an index."""
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    index: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard = f"model-{number:05}-of-00002.safetensors"
        mx.save_safetensors(str(folder / shard), {name: weights[name] for name in part}, {"format": "mlx"})
        index |= dict.fromkeys(part, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def test_weights_in_several_files_load(folder: Path, settings: LoadSettings) -> None:
    closed(load(str(with_shards(folder)), settings))


def missing_shard(folder: Path) -> None:
    (with_shards(folder) / "model-00002-of-00002.safetensors").unlink()


def cut(name: str, keep: float) -> Any:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return change


def write(name: str, text: str) -> Any:
    return lambda folder: (folder / name).write_text(text)


def without(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def of_kind(kind: str) -> Any:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": kind}))

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without("config.json"), "{path} is a folder without a model: it has no config.json; give a GGUF file or"),
        (write("config.json", "{"), "{path}/config.json is broken: "),
        (write("config.json", "{}"), "{path}/config.json does not say which model_type it is for"),
        (of_kind("no-such-model"), "{path} cannot be loaded: ValueError: Model type no-such-model not supported."),
        (without("model.safetensors"), "{path} has no weights: no model*.safetensors"),
        (cut("model.safetensors", 0.9), "exceeding the size of the file. Perhaps an incomplete download"),
        (cut("model.safetensors", 0.0), "{path} cannot be loaded: "),
        (missing_shard, "{path} has no model-00002-of-00002.safetensors, which its index names"),
        (without("tokenizer.json"), "{path} has no tokenizer.json; convert the model with a fast tokenizer"),
        (cut("tokenizer.json", 0.5), "{path}/tokenizer.json is not JSON: "),
        (cut("tokenizer_config.json", 0.5), "{path}/tokenizer_config.json is not JSON: "),
        (write("chat_template.jinja", "{% for %}"), "the model's chat template cannot be read: "),
    ],
)
def test_a_folder_that_is_not_whole_is_told_in_one_sentence(
    folder: Path, settings: LoadSettings, change: Any, told: str
) -> None:
    change(folder)
    with pytest.raises(ModelLoadFailed) as failed:
        load(str(folder), settings)
    assert told.format(path=folder) in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("forms", "calls"),
    [((), "it is told in words how to call tools"), ((("*", "plain"),), "it will call no tools")],
    ids=["generic", "plain"],
)
def test_without_a_chat_template_it_is_said_how_it_calls_tools(
    folder: Path,
    settings: LoadSettings,
    caplog: pytest.LogCaptureFixture,
    forms: tuple[tuple[str, str], ...],
    calls: str,
) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    with caplog.at_level(logging.WARNING, "tenuto"):
        closed(load(str(folder), replace(settings, tool_formats=forms)))
    assert f"{folder} has no chat template; ChatML is used, and {calls}" in caplog.messages


# From the Hub


def repository(hub: Hub) -> dict[str, bytes]:
    """The files of a repository as people publish them; those of the model alone."""
    model = {path.name: path.read_bytes() for path in mlx_folder().iterdir()}
    others = {
        "README.md": b"hello",
        "modeling.py": b"raise SystemExit",
        "pytorch_model.bin": b"x",
        ".gitattributes": b"x",
    }
    hub.files = {**model, **others, "onnx/model.safetensors": b"other weights", "tokenizer.model": b"x"}
    return model


def asked(hub: Hub) -> list[str]:
    return [path.removeprefix("/files/") for path, _ in hub.requests if path.startswith("/files/")]


def test_a_model_comes_from_the_hub_once_and_nothing_beside_it(hub: Hub, settings: LoadSettings) -> None:
    model = repository(hub)
    pipeline = closed(load("hf:owner/model", settings))
    assert pipeline.codec.info.model == "owner/model"
    assert asked(hub) == sorted(model, key=lambda name: len(model[name])), "the small files come first"
    found = find("hf:owner/model", settings)
    assert {path.name: path.read_bytes() for path in found.path.iterdir() if path.suffix != ".lock"} == model
    assert len(asked(hub)) == len(model)


def test_where_there_is_gguf_too_safetensors_are_asked_for_by_name(hub: Hub, settings: LoadSettings) -> None:
    repository(hub)
    hub.files["tiny-Q8_0.gguf"] = b"GGUF and more"
    assert find("hf:owner/model", settings).kind == "gguf"
    assert find("hf:owner/model:Q8_0", settings).kind == "gguf"
    assert find("hf:owner/model:mlx", settings).kind == "mlx"


def test_a_download_that_broke_off_is_resumed(hub: Hub, settings: LoadSettings) -> None:
    repository(hub)
    hub.break_after = 100_000
    with pytest.raises(ModelLoadFailed, match=r"model\.safetensors of hf:owner/model broke off and can be resumed"):
        load("hf:owner/model", settings)
    hub.break_after = None
    closed(load("hf:owner/model", settings))
    assert ("/files/model.safetensors", "bytes=100000-") in hub.requests
    assert asked(hub).count("config.json") == 1
    assert asked(hub).count("tokenizer.json") == 1


def test_what_was_downloaded_serves_where_the_hub_cannot_be_reached(
    hub: Hub, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(hub)
    found = find("hf:owner/model", settings)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert find("hf:owner/model", settings) == found
    closed(load("hf:owner/model", settings))


@pytest.mark.parametrize(
    ("name", "missing", "told"),
    [
        ("hf:owner/model", "config.json", "hf:owner/model has safetensors and no config.json; MLX cannot load it"),
        ("hf:owner/model", "tokenizer.json", "hf:owner/model has safetensors and no tokenizer.json; MLX cannot"),
        ("hf:owner/model", "model.safetensors", "hf:owner/model has no GGUF file and no safetensors; there are: none"),
        ("hf:owner/model:mlx", "model.safetensors", "hf:owner/model has no model*.safetensors for MLX"),
    ],
)
def test_a_repository_that_is_not_whole_is_refused_before_anything_comes(
    hub: Hub, settings: LoadSettings, name: str, missing: str, told: str
) -> None:
    repository(hub)
    del hub.files[missing]
    with pytest.raises(ModelLoadFailed) as failed:
        load(name, settings)
    assert str(failed.value).startswith(told)
    assert asked(hub) == []


def test_without_the_extra_nothing_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    repository(hub)
    code = """
import sys
sys.modules["mlx_lm"] = None
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.loader import load
try:
    load("hf:owner/model")
except ModelLoadFailed as error:
    print(error)
"""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=True, env=environment
    )
    assert done.stdout == "MLX models need mlx and mlx-lm: pip install 'tenuto[mlx]'\n"
    assert asked(hub) == []


LOADED_IN_A_THREAD = """
import anyio, sys
from tenuto.pipelines.loader import load, LoadSettings

async def main():
    await anyio.to_thread.run_sync(load, sys.argv[1], LoadSettings(slots=1, cells=256))
    raise SystemExit(3)

anyio.run(main)
"""


@pytest.mark.slow
def test_a_process_that_has_loaded_a_model_in_a_thread_ends_in_order(folder: Path) -> None:
    """MLX ends a process by a signal where a thread's streams are torn down while Python exits: mostly, not always."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", LOADED_IN_A_THREAD, str(folder)], capture_output=True, timeout=HANGS_S
        )
        assert (done.returncode, done.stderr) == (3, b"")
