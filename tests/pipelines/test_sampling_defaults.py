"""How tokens are chosen where a request is silent: what a model's files advise, as far as they say it in earnest."""

import json
from pathlib import Path
from typing import Any

import pytest

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.sampling_defaults import GREEDY, TEMPERATURE, AskedSampling, SamplingDefaults

ADVISED = SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95, min_p=0.1, repetition_penalty=1.05)


def test_what_a_request_names_counts_more_than_what_the_model_advises() -> None:
    assert AskedSampling().over(ADVISED) == Sampling(0.6, 20, 0.95, 0.1, repetition_penalty=1.05)
    asked = AskedSampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, seed=7)
    assert asked.over(ADVISED) == Sampling(seed=7)
    assert AskedSampling(top_p=0.5, logprobs=2).over(ADVISED).top_k == 20
    assert AskedSampling().over(GREEDY) == Sampling()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, SamplingDefaults()),
        ({"temperature": 0.6, "top_k": 20.0, "top_p": 0.95}, SamplingDefaults(0.6, 20, 0.95)),
        ({"temperature": "hot", "top_k": None, "top_p": True, "min_p": [0.1]}, SamplingDefaults()),
        ({"temperature": -1, "top_k": -1, "top_p": 2, "repetition_penalty": 0}, SamplingDefaults()),
        ({"temperature": float("nan"), "min_p": float("inf")}, SamplingDefaults()),
        ({"do_sample": True, "eos_token_id": [1]}, SamplingDefaults(temperature=TEMPERATURE)),
    ],
)
def test_advice_that_is_no_number_in_its_range_is_none(given: dict[str, Any], found: SamplingDefaults) -> None:
    assert SamplingDefaults.advised(given) == found


def test_a_gguf_file_advises_in_its_metadata_and_ends_turns_with_several_tokens(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    from tenuto.pipelines.llama_cpp import LlamaTokenizer, Model
    from tests.pipelines.tiny_llama import id_of, tiny_llama

    numbers = {
        "general.sampling.temp": 0.6,
        "general.sampling.top_k": 20,
        "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.1,
        "general.sampling.penalty_repeat": 1.05,
    }
    ends = {"tokenizer.ggml.eot_token_id": "<|eot|>", "tokenizer.ggml.eom_token_id": "<|eom|>"}
    model = Model(tiny_llama(tmp_path / "advises.gguf", numbers=numbers, tokens=ends), vocabulary_only=True)
    found = model.sampling_defaults
    assert [round(value, 6) for value in (found.temperature, found.top_p, found.min_p)] == [0.6, 0.95, 0.1]
    assert (found.top_k, round(found.repetition_penalty, 6)) == (20, 1.05)
    assert LlamaTokenizer(model).stop_tokens == {id_of("</s>"), id_of("<|eot|>"), id_of("<|eom|>")}


def test_a_folder_advises_in_its_generation_settings(tmp_path: Path) -> None:
    pytest.importorskip("mlx")
    from tenuto.pipelines.mlx import read_folder

    settings = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2], "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 3}))
    folder = read_folder(tmp_path)
    assert folder.sampling_defaults == SamplingDefaults(0.6, 20, 0.95)
    assert folder.end_tokens == {1, 2, 3}
