"""Loading a folder: what is read, and what a missing or broken file says."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.utils import load_model, save_model

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.mlx import MlxBackend, MlxSettings, Model
from tests.pipelines.mlx.streams import Stream, alone, assert_same, prompt, step
from tests.pipelines.mlx.tiny import VOCABULARY, WINDOW, write_model


def test_a_model_tells_what_its_cache_is_planned_by(model: Model, kind: str) -> None:
    assert (model.vocabulary, model.training_context, model.can_batch) == (VOCABULARY, 4096, True)
    layer = 2 * 2 * 16 * 4  # keys and values, heads, their size, bytes
    state = 2 * 2 * 64 * 4  # layers, tokens, width, bytes
    assert model.bytes_per_token == {"llama": 3, "sliding": 3, "hybrid": 1}[kind] * layer
    assert (
        model.cache_bytes(1000)
        == {
            "llama": 3000 * layer,
            "sliding": (1000 + 2 * WINDOW) * layer,
            "hybrid": 1000 * layer + state,
        }[kind]
    )
    info = MlxBackend(model, MlxSettings(slots=2, cells=1000)).info
    assert (info.context, info.slots, info.cells) == (1000, 2, 1000)
    assert info.can_truncate == (kind == "llama")
    assert 1000 * info.bytes_per_token >= model.cache_bytes(1000)
    assert MlxBackend(model, MlxSettings(cells=9999)).info.context == 4096


def test_a_window_as_long_as_the_context_forgets_nothing(tmp_path: Path) -> None:
    model = Model(write_model(tmp_path, "sliding", sliding_window=512))
    assert MlxBackend(model, MlxSettings(cells=511)).info.can_truncate
    assert not MlxBackend(model, MlxSettings(cells=512)).info.can_truncate


def test_the_generation_config_says_what_ends_a_turn(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    assert Model(folder).eos_tokens == {261}
    (folder / "generation_config.json").write_text('{"eos_token_id": [260, 261]}')
    assert Model(folder).eos_tokens == {260, 261}


def test_a_quantised_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "full")
    network, config = load_model(folder)
    nn.quantize(network, group_size=32, bits=4)
    save_model(tmp_path / "quantised", network)
    written = {**config, "quantization": {"group_size": 32, "bits": 4}}
    (tmp_path / "quantised" / "config.json").write_text(json.dumps(written))
    model = Model(tmp_path / "quantised")
    assert model.weight_bytes < Model(folder).weight_bytes / 4
    backend = MlxBackend(model, MlxSettings(cells=256))
    expected = [alone(backend, prompt(number, 10 + number), 5) for number in range(2)]
    streams = [Stream(slot, prompt(slot, 10 + slot)) for slot in range(2)]
    for _ in range(5):
        step(backend, streams)
    for one, other in zip(expected, streams, strict=True):
        assert_same(one, other)


SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}


def test_a_model_that_was_loaded_in_one_thread_runs_in_another(kind: str, tmp_path: Path) -> None:
    """Also with tables that a layer works out for itself, which are no weights."""
    backend = MlxBackend(Model(write_model(tmp_path, kind, rope_scaling=SCALING)), MlxSettings(cells=256))
    stream = Stream(1, prompt(1, 60))

    def serve() -> None:
        for _ in range(3):
            step(backend, [stream])
        backend.restore(2, backend.snapshot(1))
        backend.close()

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(30)
    assert len(stream.tokens) == 3


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def without_a_tensor(folder: Path) -> None:
    weights = mx.load(str(folder / "model.safetensors"))
    del weights["model.norm.weight"]
    mx.save_safetensors(str(folder / "model.safetensors"), weights)


def with_config(**changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


INDEX = '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
BROKEN = {
    "no config": (without("config.json"), "no config.json"),
    "a config that is no JSON": (with_text("config.json", "{"), "config.json is broken"),
    "a config that is a list": (with_text("config.json", "[]"), "model_type"),
    "a config without a type": (with_text("config.json", "{}"), "model_type"),
    "a type that nobody knows": (with_config(model_type="nonsense"), "nonsense not supported"),
    "a config that lacks something": (with_text("config.json", '{"model_type": "llama"}'), "hidden_size"),
    "a config of another shape": (with_config(hidden_size=32), "shape"),
    "code of its own": (with_config(model_file="model.py"), "model.py"),
    "no weights": (without("model.safetensors"), "no weights"),
    "weights that are cut": (cut, "cannot be loaded"),
    "weights that are none": (with_text("model.safetensors", "nothing"), "cannot be loaded"),
    "weights that lack a tensor": (without_a_tensor, "model.norm.weight"),
    "an index that names what is not there": (with_text("model.safetensors.index.json", INDEX), "has no model-1"),
    "an index that is none": (with_text("model.safetensors.index.json", "[]"), "index.json is broken"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_missing_or_broken_file_is_told_in_a_line(tmp_path: Path, case: str) -> None:
    breaks, words = BROKEN[case]
    folder = write_model(tmp_path)
    breaks(folder)
    with pytest.raises(ModelLoadFailed) as failed:
        Model(folder)
    assert words in str(failed.value)
    assert str(folder) in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="no folder"):
        Model(tmp_path / "nothing")
