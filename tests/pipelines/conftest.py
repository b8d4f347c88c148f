"""The embedded model's vocabulary and template, loaded once without weights."""

from pathlib import Path

import pytest

import tenuto.pipelines
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.llama_cpp import LlamaTokenizer, Model


@pytest.fixture(scope="session")
def embedded_model() -> Model:
    folder = Path(tenuto.pipelines.__file__).parent / "embedded"
    return Model(next(iter(sorted(folder.glob("*q8_0.gguf")))), vocabulary_only=True)


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded_model: Model) -> LlamaTokenizer:
    return LlamaTokenizer(embedded_model)


@pytest.fixture(scope="session")
def embedded_template(embedded_model: Model) -> str:
    template = embedded_model.chat_template
    assert template
    return template


@pytest.fixture(scope="session")
def embedded_codec(embedded_tokenizer: LlamaTokenizer, embedded_template: str) -> TemplateCodec:
    return TemplateCodec("embedded", embedded_tokenizer, embedded_template)
