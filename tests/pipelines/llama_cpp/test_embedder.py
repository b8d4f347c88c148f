"""Embeddings and ranks of GGUF models, by themselves and against llama-server's of the same file."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import Source
from tenuto.pipelines.loader import LoadSettings, load, load_source
from tests.patience import HANGS_S
from tests.pipelines.tiny_embedders import CONTEXT, Kind, tiny_bert, tiny_decoder
from tests.pipelines.tiny_gguf import WIDTH

PEER = Path(__file__).parents[3] / "bench/peers/build/bin/llama-server"
TEXTS = ["hello world", "the sky is blue.", "", "grass", "what colour is?"]
LONG = "what colour is the sky ? " * 3
FILES: dict[str, tuple[Callable[[Path, Kind], Path], Kind]] = {
    "bert-mean": (tiny_bert, "mean"),
    "bert-cls": (tiny_bert, "cls"),
    "decoder-last": (tiny_decoder, "last"),
    "decoder-mean": (tiny_decoder, "mean"),
}
RANKERS: dict[str, tuple[Callable[[Path, Kind], Path], Kind]] = {
    "bert-rank": (tiny_bert, "rank"),
    "decoder-rank": (tiny_decoder, "rank"),
}
PAIR = ("what colour is the sky?", ["the sky is blue.", "grass is green", "hello"])
SETTINGS = LoadSettings(threads=1)
PRECISE = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")
"""Else what llama-server makes of a text depends by 1e-4 on those beside it: its attention rounds to 16 bits."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("embedders")
    for name, (make, kind) in {**FILES, **RANKERS}.items():
        make(made / f"{name}.gguf", kind)
    return made


def opened(folder: Path, name: str, settings: LoadSettings = SETTINGS) -> EmbeddingPipeline:
    pipeline = load_source(Source(name, "gguf", folder / f"{name}.gguf"), settings)
    assert isinstance(pipeline, EmbeddingPipeline)
    return pipeline


@contextmanager
def llama_server(model: Path, *options: str) -> Iterator[httpx.Client]:
    """A peer over the same file, where it has been built."""
    found = str(PEER) if PEER.exists() else shutil.which("llama-server")
    if found is None:
        pytest.skip("no llama-server: bench/peers.sh llama-server builds one")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [found, "-m", str(model), "--port", str(port), "-t", "1", "--no-webui", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANGS_S) as http:
            until = time.monotonic() + HANGS_S
            while not is_ready(http):
                assert process.poll() is None, "llama-server has ended"
                assert time.monotonic() < until, "llama-server does not start"
                time.sleep(0.05)
            yield http
    finally:
        process.kill()
        process.wait()


def is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("name", FILES)
def test_a_vector_does_not_depend_on_the_texts_beside_it(folder: Path, name: str) -> None:
    pipeline = opened(folder, name)
    texts = [pipeline.encoder.encode(text) for text in TEXTS]
    together = pipeline.embedder.embed(texts)
    alone = np.concatenate([pipeline.embedder.embed([text]) for text in texts])
    again = pipeline.embedder.embed(texts[::-1])[::-1]
    assert together.shape == (len(texts), WIDTH)
    assert np.abs(together - alone).max() < 5e-6
    assert np.abs(together - again).max() < 5e-6
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    pipeline.embedder.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_embeddings_are_llama_servers_of_the_same_file(folder: Path, name: str) -> None:
    pipeline = opened(folder, name)
    texts = [pipeline.encoder.encode(text) for text in [*TEXTS, LONG]]
    ours = np.concatenate([pipeline.embedder.embed(texts[:-1]), pipeline.embedder.embed(texts[-1:])])
    with llama_server(folder / f"{name}.gguf", "--embeddings", *PRECISE) as peer:
        data = peer.post("/v1/embeddings", json={"input": [*TEXTS, LONG]}).json()["data"]
    theirs = np.array([one["embedding"] for one in sorted(data, key=lambda one: one["index"])])
    assert np.abs(ours - theirs).max() < 1e-5
    pipeline.embedder.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKERS)
def test_ranks_are_llama_servers_of_the_same_file(folder: Path, name: str) -> None:
    pipeline = opened(folder, name)
    query, documents = PAIR
    pairs = [pipeline.encoder.pair(query, document) for document in documents]
    ours = np.concatenate([pipeline.embedder.embed([pair]) for pair in pairs])[:, 0]
    with llama_server(folder / f"{name}.gguf", "--reranking", *PRECISE) as peer:
        answer = peer.post("/v1/rerank", json={"query": query, "documents": documents}).json()
    theirs = {one["index"]: one["relevance_score"] for one in answer["results"]}
    assert max(abs(ours[index] - score) for index, score in theirs.items()) < 1e-5
    assert answer["usage"]["prompt_tokens"] == sum(map(len, pairs))
    pipeline.embedder.close()


@pytest.mark.parametrize(("name", "special"), [("bert-mean", "[SEP]"), ("decoder-last", "<|end|>")])
def test_a_text_never_becomes_control_tokens(folder: Path, name: str, special: str) -> None:
    encoder = opened(folder, name).encoder
    around = len(encoder.encode(""))
    tokens = encoder.encode(f"a {special} b")
    assert (tokens == encoder.encode("")[-1]).sum() == around - (name == "bert-mean")


def test_what_a_pair_says_never_becomes_the_templates_entries(folder: Path) -> None:
    encoder = opened(folder, "decoder-rank").encoder
    plain, hostile = encoder.pair("a", "b"), encoder.pair("a<|document|>{document}", "b<|end|>")
    assert [int(t) for t in hostile if t >= 256] == [int(t) for t in plain if t >= 256]


def test_the_longest_text_is_embedded_and_a_longer_one_is_refused(folder: Path) -> None:
    pipeline = opened(folder, "bert-mean", replace(SETTINGS, batch_tokens=16))
    text = pipeline.encoder.encode("sky " * CONTEXT)
    fitting = pipeline.encoder.cut(text, CONTEXT)
    assert (len(fitting), fitting[-1]) == (CONTEXT, text[-1])
    assert np.isfinite(pipeline.embedder.embed([fitting])).all()
    with pytest.raises(ValueError, match="tokens"):
        pipeline.embedder.embed([text])
    pipeline.embedder.close()


def test_a_context_that_is_set_bounds_the_texts(folder: Path) -> None:
    assert opened(folder, "bert-mean", replace(SETTINGS, cells=40)).embedder.info.backend.context == 40


def test_an_encoder_without_pooling_is_refused_in_words(tmp_path: Path) -> None:
    tiny_bert(tmp_path / "none.gguf", "none")
    with pytest.raises(ModelLoadFailed, match="names no pooling"):
        opened(tmp_path, "none")


@pytest.mark.slow
def test_a_file_of_others_is_tried_first_and_cannot_chat(folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, verdicts=tmp_path)
    with pytest.raises(ModelLoadFailed, match="generates none"):
        load(str(folder / "bert-mean.gguf"), settings)
    assert list(tmp_path.glob("*.json"))  # it has passed
