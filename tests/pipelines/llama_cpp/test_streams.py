"""A saved sequence goes on in a context of another number of streams, whatever caches its model has."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Row, Sampling, Snapshot
from tenuto.pipelines.cache_types import CacheType
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model
from tenuto.pipelines.llama_cpp.batch import Feed
from tenuto.pipelines.llama_cpp.context import Context
from tenuto.pipelines.llama_cpp.streams import for_streams
from tenuto.pipelines.loader import find
from tests.pipelines.shaped import Facts, shaped_gguf

SMALL: Facts = {
    "context_length": 1024,
    "embedding_length": 128,
    "block_count": 4,
    "feed_forward_length": 128,
    "vocab_size": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
HEADS: Facts = {"attention.key_length": 64, "attention.value_length": 64}
MAMBA: Facts = {
    "ssm.conv_kernel": 4, "ssm.inner_size": 256, "ssm.state_size": 16, "ssm.time_step_rank": 8,
}  # fmt: skip
LATENT: Facts = {
    "attention.head_count_kv": 1,
    "attention.key_length": 96,
    "attention.value_length": 64,
    "attention.key_length_mla": 64,
    "attention.value_length_mla": 32,
    "attention.kv_lora_rank": 64,
    "attention.q_lora_rank": 32,
    "rope.dimension_count": 32,
    "leading_dense_block_count": 1,
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 64,
    "expert_shared_count": 1,
}
MODELS: dict[str, tuple[str, Facts]] = {
    "one cache": ("llama", SMALL),
    "two caches": ("gemma2", {**SMALL, **HEADS, "attention.sliding_window": 8}),
    "keys alone": ("deepseek2", {**SMALL, **LATENT}),
    "positions of three numbers": (
        "qwen2vl",
        {**SMALL, "rope.dimension_sections": [4, 6, 6, 0]},
    ),
    "a running state": ("mamba", {**SMALL, **MAMBA, "attention.head_count": 0, "attention.head_count_kv": 0}),
    "a cache and a running state": (
        "lfm2",
        {**SMALL, "shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]},
    ),
}


@contextmanager
def context(model: Model, streams: int, cache_type: CacheType = "f16") -> Iterator[Context]:
    made = Context(model, streams=streams, cells=256, batch_tokens=64, threads=1, cache_type=cache_type)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_is_the_same_after_a_stay_in_contexts_of_other_numbers(name: str, tmp_path: Path) -> None:
    model = Model(shaped_gguf(tmp_path / "shaped.gguf", *MODELS[name]))
    with context(model, 4) as first:
        first.decode([Feed(1, 0, [1] * 7, 0), Feed(2, 0, [1, 2, 3, 4, 5] * 4, 1)])
        first.logits()
        saved = first.save(2)
        for streams in (1, 3, 9):
            with context(model, streams) as other:
                other.load(streams - 1, saved, 20)
                again = other.save(streams - 1)
            first.clear(2)
            first.load(2, again, 20)
            assert np.array_equal(first.save(2), saved)


@pytest.mark.parametrize("cache_type", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(("before", "after"), [(4, 1), (4, 2), (2, 8), (1, 3)])
def test_a_sequence_goes_on_after_the_number_of_slots_has_changed(
    cache_type: CacheType, before: int, after: int
) -> None:
    model = Model(find("embedded:gguf").path)
    prompt = [40, 60, 50, 70, 45, *range(50, 90)]
    tokens: list[int] = []
    snapshots: list[Snapshot] = []
    for slots in (before, after):
        backend = LlamaBackend(model, LlamaSettings(slots=slots, cells=256, batch_tokens=64, cache_type=cache_type))
        if snapshots:
            backend.restore(0, snapshots[0])
        else:
            backend.collect(backend.launch([Row(slots - 1, 0, prompt)]))
            snapshots.append(backend.snapshot(slots - 1))
            if slots > 1:
                backend.restore(0, snapshots[0])
        row: list[int] = [80]
        for at in range(8):
            [token] = backend.collect(backend.launch([Row(0, len(prompt) + at, row, backend.sampler(Sampling()))]))
            assert isinstance(token, int)
            row = [token]
            tokens.append(token)
        backend.close()
    assert tokens[:8] == tokens[8:]


def test_what_is_no_saved_sequence_is_refused_as_before() -> None:
    model = Model(find("embedded:gguf").path)
    backend = LlamaBackend(model, LlamaSettings(slots=2, cells=256, batch_tokens=64))
    other = LlamaBackend(model, LlamaSettings(slots=4, cells=256, batch_tokens=64))
    other.collect(other.launch([Row(3, 0, [40, 41, 42])]))
    snapshot = other.snapshot(3)
    for size in (0, 5, 12, 30, 100, snapshot.nbytes - 40, snapshot.nbytes - 1):
        with pytest.raises(GenerationFailed):
            backend.restore(0, Snapshot(3, size, bytes(snapshot.data)[:size]))
        assert backend.snapshot(0).tokens == 0
    backend.restore(0, snapshot)
    backend.close()
    other.close()


@given(data=st.binary(max_size=300), streams=st.integers(1, 8))
def test_other_bytes_are_left_as_they_are_or_become_others(data: bytes, streams: int) -> None:
    octets = np.frombuffer(data, np.uint8)
    assert for_streams(octets, streams).dtype == np.uint8
