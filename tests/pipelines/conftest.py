"""The embedded model's vocabulary and template, loaded once and without weights."""

from pathlib import Path

import pytest
from hypothesis import settings

import tenuto.pipelines
from tenuto.pipelines.codec import TemplateCodec, Tokenizer

# A test machine may be busy: how long one example takes says nothing.
settings.register_profile("tenuto", deadline=None)
settings.load_profile("tenuto")


@pytest.fixture(scope="session")
def embedded() -> tuple[Tokenizer, str]:
    pytest.importorskip("llama_cpp")
    from tenuto.pipelines.llama_cpp import LlamaTokenizer, Model

    folder = Path(tenuto.pipelines.__file__).parent / "embedded"
    model = Model(min(folder.glob("*q8_0.gguf")), vocabulary_only=True)
    template = model.chat_template
    assert template
    return LlamaTokenizer(model), template


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded: tuple[Tokenizer, str]) -> Tokenizer:
    return embedded[0]


@pytest.fixture(scope="session")
def embedded_template(embedded: tuple[Tokenizer, str]) -> str:
    return embedded[1]


@pytest.fixture(scope="session")
def embedded_codec(embedded_tokenizer: Tokenizer, embedded_template: str) -> TemplateCodec:
    return TemplateCodec("embedded", embedded_tokenizer, embedded_template)
