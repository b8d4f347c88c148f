"""Greedy answers are the same however the engine computes them: with drafts or without, with more threads or fewer."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs tenuto[llama]")

from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.base import Pipeline, ToolChoice
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Round, Stopped, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient, QueueLimits
from tenuto.sessions.items import ToolSpec, UserItem
from tenuto.tools.builtin import Calculator, Clock

QUESTIONS = Path(__file__).parents[3] / "bench" / "questions" / "questions.toml"
NEAR, PARTED, TOKENS = 1e-2, 1, 64
SETTINGS = LoadSettings(slots=4, cells=1024, threads=1, drafts=0)


async def answers(settings: LoadSettings, prompts: Sequence[Sequence[int]], tools: list[ToolSpec]) -> list[list[int]]:
    """What an engine says, four at a time; every other is a forced call."""
    pipeline = load("embedded:gguf", settings)
    assert isinstance(pipeline, Pipeline)
    grammar = pipeline.codec.grammar(tools, ToolChoice.REQUIRED, parallel=False)
    client = EngineClient("m", 4, Engine(pipeline, EngineSettings()), QueueLimits(64, 1 << 20), lambda _: None)
    said: list[list[int]] = []
    try:
        for begin in range(0, len(prompts), 4):
            streams = []
            for at, prompt in enumerate(prompts[begin : begin + 4], begin):
                held = Round(TOKENS, Sampling(), pipeline.codec.info.stop_tokens, grammar=grammar if at % 2 else None)
                streams.append(client.submit(f"s{at}", prompt, held, principal=f"p{at}"))
            for stream in streams:
                said.append([])
                async for event in stream:
                    match event:
                        case TokensSampled():
                            said[-1] += event.tokens
                        case Stopped():
                            break
        if settings.drafts:
            assert client.status.accepted > 0
    finally:
        await client.stop(10.0)
    return said


def gap(prompt: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
    """How far the logits of two answers' candidates lie apart where they part."""
    at = next(at for at, (first, second) in enumerate(zip(one, other, strict=False)) if first != second)
    pipeline = load("embedded:gguf", SETTINGS)
    assert isinstance(pipeline, Pipeline)
    sampler = pipeline.backend.sampler(Sampling())
    pending = pipeline.backend.launch([Row(0, 0, [*prompt, *one[:at]], sampler)])
    pipeline.backend.collect(pending)
    logits = getattr(pending, "logits")[0]  # noqa: B009 -- of this backend, not of all
    sampler.close()
    pipeline.backend.close()
    return abs(float(logits[one[at]] - logits[other[at]]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [pytest.param(replace(SETTINGS, drafts=64), marks=pytest.mark.thorough), replace(SETTINGS, drafts=64, threads=2)],
)
@pytest.mark.parametrize("questions", [12, pytest.param(50, marks=pytest.mark.thorough)])
async def test_greedy_answers_are_the_same(other: LoadSettings, questions: int) -> None:
    tools = [
        ToolSpec(f"{server.name}__{tool.spec.name}", tool.spec.description, tool.spec.parameters)
        for server in (Calculator(), Clock())
        for tool in await server.list()
    ]
    pipeline = load("embedded:gguf", SETTINGS)
    assert isinstance(pipeline, Pipeline)
    asked = [entry["text"] for entry in tomllib.loads(QUESTIONS.read_text())["question"]][:questions]
    rendered = [pipeline.codec.suffix([], [UserItem(text)], tools, ended=True) for text in asked]
    prompts = [[token for item in each.items for token in item] + list(each.opening) for each in rendered]
    pipeline.backend.close()
    plain, said = await answers(SETTINGS, prompts, tools), await answers(other, prompts, tools)
    parted = [(prompt, *pair) for prompt, *pair in zip(prompts, plain, said, strict=True) if pair[0] != pair[1]]
    assert len(parted) <= PARTED
    for prompt, first, second in parted:
        assert gap(prompt, first, second) <= NEAR
