"""What is planned for a model is what llama.cpp takes for it: never less, and hardly more. No memory is taken."""

import re
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp")

import llama_cpp as lib

from tenuto.pipelines.cache_types import CacheType, can_hold
from tenuto.pipelines.fit import PLAIN_TOKENS, Memory, Wishes, most_drafts, plan
from tenuto.pipelines.gguf_header import read_gguf_header
from tenuto.pipelines.llama_cpp.native import log_callback
from tenuto.pipelines.model_shape import shape_of
from tests.pipelines.shaped import Facts, shaped_gguf

MIB = 1 << 20
NUMBERS: dict[CacheType, int] = {"f16": lib.GGML_TYPE_F16, "q8_0": lib.GGML_TYPE_Q8_0, "q4_0": lib.GGML_TYPE_Q4_0}
MOST = 1.05
SPARE = 64 * MIB
"""So much more is planned at most than this part of all, and these bytes."""


def facts(width: int, layers: int, inner: int, heads: int, kv: int, vocabulary: int, **others: int) -> Facts:
    named = {
        "context_length": 32768,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": inner,
        "vocab_size": vocabulary,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
    }
    return {
        **named,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **{key.replace("__", "."): value for key, value in others.items()},
    }


HEADS_128 = {"attention__key_length": 128, "attention__value_length": 128}
HEADS_256 = {"attention__key_length": 256, "attention__value_length": 256}
HEADS_64 = {"attention__key_length": 64, "attention__value_length": 64}
MAMBA = {"ssm__conv_kernel": 4, "ssm__inner_size": 2048, "ssm__state_size": 16, "ssm__time_step_rank": 64}
LATENT = {
    "attention__key_length": 576,
    "attention__value_length": 512,
    "attention__key_length_mla": 192,
    "attention__value_length_mla": 128,
    "attention__kv_lora_rank": 512,
    "rope__dimension_count": 64,
}
MODELS: dict[str, tuple[str, Facts]] = {
    # with fewer layers than those of these names have
    "Llama 3.1 8B": ("llama", facts(4096, 8, 14336, 32, 8, 128_256)),
    "Qwen3 0.6B": ("qwen3", facts(1024, 8, 3072, 16, 8, 151_936, **HEADS_128)),
    "Qwen3 30B A3B": (
        "qwen3moe",
        facts(
            2048, 6, 6144, 32, 4, 151_936, **HEADS_128,
            expert_count=128, expert_used_count=8, expert_feed_forward_length=768,
        ),
    ),
    "Gemma 2 2B": ("gemma2", facts(2304, 8, 9216, 8, 4, 256_000, **HEADS_256, attention__sliding_window=4096)),
    "Gemma 3 4B": ("gemma3", facts(2560, 12, 10240, 8, 4, 262_144, **HEADS_256, attention__sliding_window=1024)),
    "gpt-oss 20B": (
        "gpt-oss",
        facts(
            2880, 6, 2880, 64, 8, 201_088, **HEADS_64, attention__sliding_window=128,
            expert_count=32, expert_used_count=4, expert_feed_forward_length=2880,
        ),
    ),
    "DeepSeek V2 Lite": (
        "deepseek2",
        facts(
            2048, 27, 10944, 16, 1, 102_400, **LATENT, leading_dense_block_count=1, expert_count=64,
            expert_used_count=6, expert_feed_forward_length=1408, expert_shared_count=2,
        ),
    ),
    "Mamba 370M": ("mamba", facts(1024, 12, 0, 0, 0, 50_280, **MAMBA)),
    "LFM2 350M": (
        "lfm2",
        {
            **facts(1024, 16, 4608, 16, 8, 65_536, shortconv__l_cache=3),
            "attention.head_count_kv": [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0],
        },
    ),
    "a Jamba": (
        "jamba",
        {**facts(1024, 8, 2048, 16, 8, 65_536, **MAMBA), "attention.head_count_kv": [0, 0, 0, 8, 0, 0, 0, 0]},
    ),
    "a tiny Llama": ("llama", facts(64, 2, 256, 4, 4, 300)),
}  # fmt: skip


def taken(
    path: Path, slots: int, context: int, batch_tokens: int, cache_type: CacheType, *, drafts: int, is_plain: bool
) -> tuple[float, float]:
    """MiB that the library says it would take for a cache, and for its steps."""
    said: list[str] = []
    listening = lib.llama_log_callback(lambda _level, text, _data: said.append(text.decode(errors="replace")))
    lib.llama_log_set(listening, None)
    parameters = lib.llama_model_default_params()
    parameters.n_gpu_layers, parameters.no_alloc, parameters.load_mode = 0, True, lib.LLAMA_LOAD_MODE_NONE
    model = lib.llama_model_load_from_file(str(path).encode(), parameters)
    wanted = lib.llama_context_default_params()
    wanted.n_seq_max, wanted.n_outputs_max = slots, slots + drafts
    wanted.n_ctx = slots * context
    wanted.n_batch = wanted.n_ubatch = batch_tokens
    if is_plain:
        wanted.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        wanted.n_ubatch = min(batch_tokens, max(PLAIN_TOKENS, slots))
    wanted.kv_unified = wanted.swa_full = False
    wanted.type_k = wanted.type_v = NUMBERS[cache_type]
    made = lib.llama_init_from_model(model, wanted)
    lib.llama_free(made)
    lib.llama_model_free(model)
    lib.llama_log_set(log_callback, None)
    text = "".join(said)
    caches = re.findall(r"size = +([\d.]+) MiB \( *\d+ cells", text)
    steps = re.findall(r"(?:compute|output) +buffer size = +([\d.]+) MiB", text)
    assert caches, text
    assert steps, text
    return sum(map(float, caches)), sum(map(float, steps))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_plan_is_never_less_than_what_is_taken_and_hardly_more(name: str, tmp_path: Path) -> None:
    shape = shape_of([read_gguf_header(shaped_gguf(tmp_path / "shaped.gguf", *MODELS[name]))])
    layouts: list[tuple[int, int, int, CacheType]] = [
        (1, 256, 512, "f16"),
        (8, 1024, 512, "f16"),
        (4, 8192, 512, "f16"),
        (16, 4096, 512, "f16"),
        (1, 32768, 128, "f16"),
        (2, 4096, 512, "q8_0"),
        (2, 4096, 512, "q4_0"),
    ]
    for (slots, context, batch_tokens, cache_type), prefers_plain in product(layouts, (True, False)):
        if not all(can_hold(head, cache_type) for head in shape.heads):
            continue
        wishes = Wishes(
            slots=slots,
            context=context,
            cache_type=cache_type,
            batch_tokens=batch_tokens,
            drafts=64,
            prefers_plain=prefers_plain,
        )
        planned = plan(shape, wishes, Memory(None))
        assert prefers_plain or not planned.is_plain
        drafts = most_drafts(64, batch_tokens, shape.vocabulary)
        cache, step = taken(
            tmp_path / "shaped.gguf",
            slots,
            context,
            batch_tokens,
            cache_type,
            drafts=drafts,
            is_plain=planned.is_plain,
        )
        whole = shape.weights / MIB + cache + step
        print(f"{slots} x {context} {cache_type}: {whole:.0f} MiB are taken, {planned.total / MIB:.0f} planned")
        assert planned.cache / MIB == pytest.approx(cache, abs=0.02)
        assert step <= planned.step / MIB
        assert whole <= planned.total / MIB <= MOST * whole + SPARE / MIB


def test_the_weights_are_those_of_the_file(tmp_path: Path) -> None:
    path = shaped_gguf(tmp_path / "shaped.gguf", *MODELS["a tiny Llama"])
    header = read_gguf_header(path)
    assert shape_of([header]).weights == sum(tensor.nbytes for tensor in header.tensors.values())
