"""The same weights give the same greedy tokens on both pipelines, calls of tools among them."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("llama_cpp", reason="needs tenuto[llama]")
pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")

from tenuto.pipelines.base import Backend, Pipeline, Row, Sampling
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.sessions.items import ToolSpec, UserItem
from tenuto.tools.builtin import Calculator, Clock
from tests.embedded import gguf_file, mlx_folder
from tests.pipelines.full_weights import full_gguf

QUESTIONS = Path(__file__).parents[2] / "bench" / "questions" / "questions.toml"
PROMPTS, TOKENS = 50, 48
NEAR, PARTED = 1e-2, 1
"""At the first difference the two candidates' logits lie so near in both runs; so many prompts may part at all."""

Answer = tuple[list[int], list[NDArray[np.float32]]]


@contextmanager
def loaded(model: str) -> Iterator[Pipeline]:
    pipeline = load(model, LoadSettings(slots=1, cells=1024, threads=1))
    yield pipeline
    pipeline.backend.close()


def greedy(backend: Backend, prompt: list[int], stops: frozenset[int]) -> Answer:
    tokens: list[int] = []
    logits: list[NDArray[np.float32]] = []
    held, feed = 0, prompt
    sampler = backend.sampler(Sampling())
    while len(tokens) < TOKENS and not (tokens and tokens[-1] in stops):
        pending = backend.launch([Row(0, held, feed, sampler)])
        (token,) = backend.collect(pending)
        assert isinstance(token, int)
        logits.append(np.array(getattr(pending, "logits")[0]))  # noqa: B009 -- of these two backends, not of all
        held += len(feed)
        feed = [token]
        tokens.append(token)
    sampler.close()
    backend.release(0)
    return tokens, logits


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_same_weights_give_the_same_tokens_on_fifty_questions(tmp_path: Path) -> None:
    tools = [
        ToolSpec(f"{server.name}__{tool.spec.name}", tool.spec.description, tool.spec.parameters)
        for server in (Calculator(), Clock())
        for tool in await server.list()
    ]
    asked = [entry["text"] for entry in tomllib.loads(QUESTIONS.read_text())["question"]][::2][:PROMPTS]
    answers: list[list[Answer]] = []
    for model in (str(full_gguf(gguf_file(), mlx_folder(), tmp_path / "full.gguf")), str(mlx_folder())):
        with loaded(model) as pipeline:
            codec = pipeline.codec
            rendered = [codec.suffix([], [UserItem(text)], tools, ended=True) for text in asked]
            prompts = [[token for item in each.items for token in item] + list(each.opening) for each in rendered]
            answers.append([greedy(pipeline.backend, prompt, codec.info.stop_tokens) for prompt in prompts])
    assert len(asked) == PROMPTS
    parted = [(text, at) for text, *pair in zip(asked, *answers, strict=True) if (at := parting(*pair)) is not None]
    print(f"parted at equal logits: {parted}")
    assert len(parted) <= PARTED


def parting(one: Answer, other: Answer) -> int | None:
    """Where two answers part, both candidates being as good there; None where they do not."""
    for at, (first, second) in enumerate(zip(one[0], other[0], strict=False)):
        if first != second:
            for logits in (one[1][at], other[1][at]):
                gap = abs(float(logits[first] - logits[second]))
                assert gap <= NEAR, f"{one[0]} is not {other[0]}; the logits at {at} differ by {gap}"
            return at
    assert one[0] == other[0]
    return None
