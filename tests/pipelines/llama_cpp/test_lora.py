"""Adapters beside their base: one copy of the weights, a cache for each, and memory that goes back."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

pytest.importorskip("llama_cpp")

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines import trial
from tenuto.pipelines.adapters import Adapter, fitting
from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model, placement_of
from tenuto.pipelines.loader import LoadSettings, load
from tests.pipelines.tiny_adapter import RANK, Pair, tiny_adapter
from tests.pipelines.tiny_llama import tiny_llama

PROMPT, COUNT = list(b"Once upon a time"), 12


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "base.gguf")


def made(base: Path, adapter: Adapter | None = None) -> LlamaBackend:
    fitted = None if adapter is None else fitting(adapter, base)
    return LlamaBackend(Model(base), LlamaSettings(slots=2, cells=256, threads=1, batch_tokens=64), None, fitted)


def said(backend: LlamaBackend, slot: int = 0, count: int = COUNT) -> list[int]:
    sampler, held, feed, tokens = backend.sampler(Sampling()), 0, PROMPT, list[int]()
    for _ in range(count):
        [token] = backend.collect(backend.launch([Row(slot, held, feed, sampler)]))
        assert isinstance(token, int)
        held, feed = held + len(feed), [token]
        tokens.append(token)
    sampler.close()
    backend.release(slot)
    return tokens


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")


def test_an_adapter_changes_what_is_said_by_as_much_as_its_scale(base: Path, tmp_path: Path) -> None:
    one, two = (tiny_adapter(tmp_path / f"{seed}.gguf", base, seed=seed) for seed in (1, 2))
    adapters = [None, Adapter(one), Adapter(one, 0.25), Adapter(two), Adapter(one)]
    with ExitStack() as stack:
        backends = [stack.enter_context(closing(made(base, adapter))) for adapter in adapters]
        answers = [tuple(said(backend)) for backend in backends]
        assert answers[1] == answers[4]
        assert len(set(answers)) == 4
        assert [tuple(said(backend)) for backend in backends] == answers
        assert len({backend.info.weights.adapter for backend in backends}) == 4


def test_the_sum_of_weights_and_adapter_says_the_same(base: Path, tmp_path: Path) -> None:
    """What llama.cpp computes is what the papers say: W + scale * alpha / rank * B A."""
    alpha, scale = 8.0, 0.5
    adapter = tiny_adapter(tmp_path / "one.gguf", base)
    pairs = {tensor.name: np.array(tensor.data) for tensor in GGUFReader(adapter).tensors}
    merged = tmp_path / "merged.gguf"
    merged.write_bytes(base.read_bytes())
    weights = {tensor.name: tensor.data for tensor in GGUFReader(merged, "r+").tensors}
    for name in {name.rpartition(".lora_")[0] for name in pairs}:
        weights[name][:] += scale * alpha / RANK * pairs[f"{name}.lora_b"] @ pairs[f"{name}.lora_a"]
    for array in weights.values():
        assert array.base is not None
    del weights, array
    with closing(made(base, Adapter(adapter, scale))) as one, closing(made(merged)) as other:
        assert said(one) == said(other)


@linux
def test_weights_are_in_memory_once_and_go_with_the_last(base: Path, tmp_path: Path) -> None:
    one = made(base)
    two = made(base, Adapter(tiny_adapter(tmp_path / "a.gguf", base)))
    assert Model(base).pointer == Model(base).pointer
    answers = said(two)
    one.close()
    del one
    assert mapped(base)
    assert said(two) == answers
    two.close()
    del two
    assert not mapped(base)
    assert placement_of(base) is None


def test_a_file_that_was_changed_is_read_anew(base: Path) -> None:
    first = Model(base)
    content = base.read_bytes()
    base.unlink()
    base.write_bytes(content)
    assert Model(base).pointer != first.pointer


def test_loads_at_once_read_a_file_once(base: Path) -> None:
    begin = threading.Barrier(6)

    def loaded(_: int) -> Model:
        begin.wait()
        return Model(base)

    with ThreadPoolExecutor(6) as threads:
        models = list(threads.map(loaded, range(6)))
    assert len({model.pointer for model in models}) == 1


def test_adapters_come_and_go_while_others_answer(base: Path, tmp_path: Path) -> None:
    """Each of these touches what the library keeps of the weights' adapters, which it does not guard itself."""
    adapters = [None, *(Adapter(tiny_adapter(tmp_path / f"{n}.gguf", base, seed=n)) for n in range(3))]
    expected = []
    for adapter in adapters:
        with closing(made(base, adapter)) as backend:
            expected.append(said(backend))
        del backend

    def come_and_go(number: int) -> bool:
        same = True
        for turn in range(12):
            which = (number + turn) % len(adapters)
            with closing(made(base, adapters[which])) as backend:
                same = same and said(backend) == said(backend, 1) == expected[which]
        return same

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(come_and_go, range(4)))
    assert placement_of(base) is None


@pytest.fixture
def settings(tmp_path: Path) -> LoadSettings:
    return LoadSettings(slots=1, cells=256, threads=1, verdicts=tmp_path / "verdicts")


def closed(pipeline: Pipeline) -> Pipeline:
    pipeline.backend.close()
    return pipeline


def test_a_model_is_tried_with_its_adapter(
    base: Path, tmp_path: Path, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_adapter(tmp_path / "a.gguf", base)
    adapted = replace(settings, adapter=Adapter(path))
    assert closed(load(str(base), settings)).trial.startswith("passed in")
    assert closed(load(str(base), adapted)).trial.startswith("passed in")
    assert closed(load(str(base), adapted)).trial.startswith("passed earlier")

    def tried(*_: object) -> None:
        raise ModelLoadFailed("it was tried again")

    monkeypatch.setattr(trial, "_try", tried)
    with pytest.raises(ModelLoadFailed, match="tried again"):
        load(str(base), replace(settings, adapter=Adapter(path, 0.5)))
    tiny_adapter(path, base, seed=1)
    with pytest.raises(ModelLoadFailed, match="tried again"):
        load(str(base), adapted)


def test_an_adapter_whose_numbers_are_none_is_not_served(base: Path, tmp_path: Path, settings: LoadSettings) -> None:
    def broken(pairs: dict[str, Pair]) -> dict[str, Pair]:
        return {name: (first, second * np.float32("nan")) for name, (first, second) in pairs.items()}

    path = tiny_adapter(tmp_path / "nan.gguf", base, pairs=broken)
    with pytest.raises(ModelLoadFailed, match="not finite"):
        load(str(base), replace(settings, adapter=Adapter(path)))


def test_an_adapter_of_another_model_is_refused_before_anything_is_loaded(
    base: Path, tmp_path: Path, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_try", None)
    path = tiny_adapter(tmp_path / "qwen.gguf", base, architecture="qwen3")
    with pytest.raises(ModelLoadFailed, match="adapts models of the architecture 'qwen3'"):
        load(str(base), replace(settings, adapter=Adapter(path)))


def test_a_model_of_another_form_has_no_adapter(base: Path, tmp_path: Path, settings: LoadSettings) -> None:
    (tmp_path / "script.json").write_text("{}")
    adapted = replace(settings, adapter=Adapter(tiny_adapter(tmp_path / "a.gguf", base)))
    with pytest.raises(ModelLoadFailed, match="adapters are for GGUF models"):
        load(f"scripted:{tmp_path / 'script.json'}", adapted)
