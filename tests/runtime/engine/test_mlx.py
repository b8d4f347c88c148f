"""The engine over MLX: with each kind of cache nothing is computed twice, and what fails fails alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="needs the extra tenuto[mlx]")

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import GrammarSource, Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.mlx import MlxBackend, MlxSettings, Model
from tenuto.pipelines.mlx.sampling import MlxSampler, Order
from tenuto.pipelines.scripted import TEMPLATE, ScriptedTokenizer
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Residency, Round, Stopped
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.sessions.tokens import Tokens
from tests.pipelines.mlx.tiny import CONFIGS, write_model
from tests.runtime.engine.rig import Reading

COUNT = 12
"""Tokens of each round; a random model ends by itself only where it must."""


class Faulty(MlxSampler):
    """A sampler whose third token fails."""

    def order(self, mask: Any) -> Order:
        if sum(self._sampled.values()) == 2:
            raise OSError("the sampler is broken")
        return super().order(mask)

    def accept(self, token: int) -> None:
        self._sampled[token] += 1


class Breakable(MlxBackend):
    """A backend whose samplers for a seed of 13 are faulty."""

    def sampler(self, sampling: Sampling, before: Sequence[int] = (), said: Sequence[int] = ()) -> MlxSampler:
        made = Faulty if sampling.seed == 13 else MlxSampler
        return made(sampling, before, self.vocabulary, said)


@dataclass
class Fuse:
    """A layer that raises in one pass, after the layers before it have written their caches."""

    layer: Any
    passes_left: int = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.passes_left -= 1
        if self.passes_left == 0:
            raise RuntimeError("the layer is broken")
        return self.layer(*arguments, **named)


@dataclass
class Rig:
    """An engine over a model of one kind."""

    engine: EngineClient
    fuse: Fuse

    seen: dict[str, list[int]] = field(default_factory=dict)

    def begin(self, sequence: str, tokens: Sequence[int], had: int = 0, **options: Any) -> Reading:
        seen = self.seen[sequence] = list(tokens)
        return self._read(self.engine.submit(sequence, tokens, round_of(**options), had, principal="alice"), seen)

    def resume(self, sequence: str, offset: int, tokens: Sequence[int], **options: Any) -> Reading:
        seen = self.seen[sequence] = [*self.seen[sequence][:offset], *tokens]
        known, round = Tokens(seen[:offset]).prefix(), round_of(**options)
        stream = self.engine.submit(sequence, tokens, round, principal="alice", known=known, whole=seen.copy)
        return self._read(stream, seen)

    def _read(self, stream: Any, seen: list[int]) -> Reading:
        reading = Reading(stream, seen)
        reading.task = asyncio.create_task(reading.follow())
        return reading


def round_of(grammar: GrammarSource | None = None, seed: int | None = None, max_tokens: int = COUNT) -> Round:
    return Round(max_tokens, Sampling(seed=seed), frozenset(), (), grammar)


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_model(tmp_path_factory.mktemp("model"), request.param))


@pytest.fixture(params=[3], ids=lambda slots: f"{slots} slots")
async def rig(request: pytest.FixtureRequest, model: Model) -> AsyncIterator[Rig]:
    """An engine whose model was loaded in this thread."""
    layers = model.network.model.layers
    layers[1] = fuse = Fuse(layers[1])
    backend = Breakable(model, MlxSettings(request.param, 768, 128))
    codec = TemplateCodec("tiny", ScriptedTokenizer(), TEMPLATE)
    engine = EngineClient("tiny", request.param, Engine(Pipeline(codec, backend), EngineSettings(prefill_chunk=32)))
    yield Rig(engine, fuse)
    await engine.stop(5.0)
    layers[1] = fuse.layer
    assert not engine.is_alive


def prompt(number: int, length: int = 70) -> list[int]:
    return [(number * 7919 + place * 31 + place * place) % 256 for place in range(length)]


async def whole(rig: Rig, tokens: Sequence[int]) -> list[int]:
    """What a prompt gives in a sequence of its own, computed from its beginning."""
    reading = rig.begin("whole", tokens)
    usage = (await reading.stopped()).usage
    assert usage.computed == usage.prompt
    rig.engine.release("whole")
    return reading.tokens


async def test_a_pause_computes_only_what_is_new(rig: Rig) -> None:
    """Over several pauses, while others decode beside it."""
    ledger, held = prompt(1), 0
    for turn in range(4):
        company = rig.begin(f"company{turn % 2}", prompt(20 + turn, 5))
        reading = rig.begin("s", ledger) if turn == 0 else rig.resume("s", held, ledger[held:])
        usage = (await reading.stopped()).usage
        await company.stopped()
        assert usage.computed == usage.new == (len(ledger) if turn == 0 else 21)
        ledger, held = ledger + reading.tokens + prompt(30 + turn, 20), len(ledger) + COUNT
    rig.engine.release("s")
    assert len(reading.tokens) == COUNT
    assert await whole(rig, ledger[: held - COUNT]) == reading.tokens


@pytest.mark.parametrize("rig", [1], indirect=True)
async def test_a_cache_that_was_moved_out_and_in_is_not_computed_again(rig: Rig) -> None:
    tokens, more = prompt(1), prompt(2, 20)
    first = rig.begin("s", tokens)
    await first.stopped()
    assert await whole(rig, prompt(3)) != first.tokens
    held = len(tokens) + COUNT
    second = rig.resume("s", held, more)
    usage = (await second.stopped()).usage
    assert (usage.residency, usage.computed, usage.new) == (Residency.HOST, 21, 21)
    rig.engine.release("s")
    assert await whole(rig, [*tokens, *first.tokens, *more]) == second.tokens


async def test_a_fork_computes_only_what_it_does_not_share(rig: Rig) -> None:
    tokens, more = prompt(1), prompt(2, 20)
    first = rig.begin("s", tokens)
    await first.stopped()
    shared = [*tokens, *first.tokens]
    forks = [rig.begin(f"fork{number}", [*shared, number, *more], had=len(shared) - 1) for number in range(2)]
    first_usage, second_usage = [(await fork.stopped()).usage for fork in forks]
    assert first_usage.computed == first_usage.new == 1 + 20 + 1
    assert first_usage.cached == len(shared) - 1
    # The second one may find the token that was sampled last in the first, which had to feed it.
    assert second_usage.computed in (first_usage.computed, first_usage.computed - 1)
    for name in ("s", "fork0", "fork1"):
        rig.engine.release(name)
    for number, fork in enumerate(forks):
        assert await whole(rig, [*shared, number, *more]) == fork.tokens


async def test_a_sampler_or_a_grammar_that_fails_takes_only_its_own_with_it(rig: Rig) -> None:
    expected = await whole(rig, prompt(1))
    impossible = GrammarSource(lark='start: "a"', banned=frozenset(b"a"))
    company = rig.begin("company", prompt(1))
    sampler = rig.begin("sampler", prompt(2), seed=13)
    grammar = rig.begin("grammar", prompt(3), grammar=impossible)
    assert "the sampler is broken" in (await sampler.failed()).error
    assert len(sampler.tokens) == 2
    await grammar.failed()
    await company.stopped()
    assert company.tokens == expected
    rig.engine.release("company")
    assert await whole(rig, prompt(1)) == expected


async def test_a_grammar_holds_an_answer(rig: Rig) -> None:
    held = rig.begin("s", prompt(1), grammar=GrammarSource(lark='start: "yes" | "no"'))
    company = rig.begin("company", prompt(2))
    await held.stopped()
    await company.stopped()
    assert bytes(token for token in held.tokens if token < 256) in (b"yes", b"no")


@pytest.mark.parametrize("passes", [1, 6])
async def test_a_pass_that_raises_fails_what_was_in_it_and_the_engine_serves_on(rig: Rig, passes: int) -> None:
    expected = [await whole(rig, prompt(number)) for number in range(2)]
    tokens, more = prompt(5), prompt(6, 20)
    paused = rig.begin("paused", tokens)
    await paused.stopped()
    rig.fuse.passes_left = passes
    rounds = [rig.begin(f"bad{number}", prompt(10 + number)) for number in range(2)]
    failed = [await round.ended() for round in rounds]
    assert any(not isinstance(end, Stopped) and "the layer is broken" in end.error for end in failed)
    again = rig.resume("paused", len(tokens) + COUNT, more)
    usage = (await again.stopped()).usage
    assert usage.computed == usage.new == 21
    for number in range(2):
        rig.engine.release(f"bad{number}")
        assert await whole(rig, prompt(number)) == expected[number]
    rig.engine.release("paused")
    assert await whole(rig, [*tokens, *paused.tokens, *more]) == again.tokens
