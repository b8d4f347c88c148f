"""The embedded model's vocabulary and template in each of its forms, without weights; and a Hub of one's own."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.loader import LoadSettings
from tenuto.pipelines.tokenizer import Tokenizer
from tests.embedded import gguf_file, mlx_folder
from tests.pipelines.hub import Hub


def gguf_form() -> tuple[Tokenizer, str]:
    from tenuto.pipelines.llama_cpp import LlamaTokenizer, Model

    model = Model(gguf_file(), vocabulary_only=True)
    assert model.chat_template
    return LlamaTokenizer(model), model.chat_template


def mlx_form() -> tuple[Tokenizer, str]:
    from tenuto.pipelines.mlx import MlxTokenizer

    folder = mlx_folder()
    tokenizer = MlxTokenizer(folder, json.loads((folder / "config.json").read_text())["vocab_size"])
    assert tokenizer.chat_template
    return tokenizer, tokenizer.chat_template


@pytest.fixture(scope="session")
def embedded(embedded_model: str) -> tuple[Tokenizer, str]:
    return mlx_form() if embedded_model == "embedded:mlx" else gguf_form()


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded: tuple[Tokenizer, str]) -> Tokenizer:
    return embedded[0]


@pytest.fixture(scope="session")
def embedded_template(embedded: tuple[Tokenizer, str]) -> str:
    return embedded[1]


@pytest.fixture(scope="session")
def embedded_codec(embedded_tokenizer: Tokenizer, embedded_template: str) -> TemplateCodec:
    return TemplateCodec("embedded", embedded_tokenizer, embedded_template)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("tenuto.pipelines.model_store.download.WAITS_S", (0.0,))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join(5)
    server.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> LoadSettings:
    return LoadSettings(downloads=tmp_path / "downloads", verdicts=tmp_path / "verdicts", slots=1, cells=256, threads=1)
