"""A model that embeds, from the loop's side: its queue, who withdraws, what fails, and what the loop waits for."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import numpy as np
import pytest

from tenuto.errors import ContextTooLong, GenerationFailed, InvalidRequest, Overloaded, ShuttingDown
from tenuto.pipelines.embedding import EmbeddingPipeline, TextTokens, Vectors
from tenuto.pipelines.scripted import Script, ScriptedEmbedder, ScriptedTextEncoder
from tenuto.pipelines.scripted.script import Embeds
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import RoundUsage, State
from tenuto.runtime.loop.embedding_client import EmbeddingClient
from tenuto.runtime.loop.embeddings import MOST_TOKENS, Embeddings, check_lengths
from tenuto.runtime.loop.engine_client import QueueLimits
from tenuto.runtime.loop.models import EmbeddingModel, Models
from tenuto.runtime.loop.shelf import Fixed
from tenuto.sessions.principal import LOCAL
from tests.patience import HANGS_S

WAIT_S = HANGS_S
ENCODER = ScriptedTextEncoder("scripted")


class Watched(ScriptedEmbedder):
    """The scripted embedder with a turnstile before its steps."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.steps: list[int] = []
        self.passes = threading.Semaphore(1 << 20)
        self.stands = threading.Event()
        self.closed = False

    def shut(self) -> None:
        """Let no step through from now on."""
        self.passes = threading.Semaphore(0)
        self.stands.clear()

    def embed(self, texts: Sequence[TextTokens]) -> Vectors:
        self.stands.set()
        assert self.passes.acquire(timeout=2 * WAIT_S)
        self.steps.append(len(texts))
        vectors = super().embed(texts)
        for row, text in enumerate(texts):
            if b"nan" in bytes(text[text < 256].astype(np.uint8)):
                vectors[row] = np.nan
        return vectors

    def close(self) -> None:
        self.closed = True


@dataclass
class Rig:
    client: EmbeddingClient
    embedder: Watched
    spent: list[RoundUsage] = field(default_factory=list)

    def begin(self, *texts: str, principal: str = "ada") -> "asyncio.Task[Vectors]":
        return asyncio.create_task(self.client.embed([ENCODER.encode(text) for text in texts], principal))

    async def stand(self) -> None:
        """Wait until the engine stands before a step."""
        with anyio.fail_after(WAIT_S):
            await anyio.to_thread.run_sync(self.embedder.stands.wait)


Make = Callable[..., Rig]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    rigs: list[Rig] = []

    def begin(queue: int = 64, **embeds: object) -> Rig:
        script = Script(cells=64, batch_tokens=64, embeds=Embeds.model_validate(embeds))
        embedder = Watched(script)
        spent: list[RoundUsage] = []
        engine = Engine(EmbeddingPipeline(ENCODER, embedder))
        client = EmbeddingClient("scripted", embedder.info, engine, QueueLimits(queue), spent.append)
        rigs.append(Rig(client, embedder, spent))
        return rigs[-1]

    yield begin
    for rig in rigs:
        rig.embedder.passes.release(1 << 10)
        await rig.client.stop(5.0)
        assert not rig.client.is_alive
        assert rig.client.remembered_bytes == rig.client.requests == 0
        assert rig.embedder.closed


async def test_requests_that_come_together_share_steps_and_each_gets_its_own_vectors(make: Make) -> None:
    rig = make(texts=8)
    rig.embedder.shut()
    first = rig.begin("first")
    await rig.stand()
    others = [rig.begin(f"text {number}", f"and {number}") for number in range(4)]
    await asyncio.sleep(0)
    rig.embedder.passes.release(100)
    with anyio.fail_after(WAIT_S):
        vectors = [await other for other in others]
        await first
    assert rig.embedder.steps == [1, 8]
    for number, found in enumerate(vectors):
        alone = rig.embedder.embed([ENCODER.encode(f"text {number}"), ENCODER.encode(f"and {number}")])
        assert np.array_equal(found, alone)
    assert sum(usage.computed for usage in rig.spent) == 6 + 4 * (7 + 6)


async def test_who_is_cancelled_costs_no_further_step_and_leaves_its_place(make: Make) -> None:
    rig = make(texts=1)
    rig.embedder.shut()
    request = rig.begin(*["x"] * 50)
    await rig.stand()
    assert rig.client.remembered_bytes
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert rig.client.remembered_bytes == 0
    rig.embedder.passes.release(100)
    with anyio.fail_after(WAIT_S):
        await rig.begin("y")
    assert len(rig.embedder.steps) <= 3
    assert rig.client.status.sequences[State.WAITING] == 0


async def test_a_step_that_fails_fails_its_requests_and_no_other(make: Make) -> None:
    rig = make(texts=1, fail_contains="break")
    good, bad = rig.begin("good", "again", "more"), rig.begin("fine", "break", "never")
    with pytest.raises(GenerationFailed, match="the script made this step fail"):
        await bad
    with anyio.fail_after(WAIT_S):
        assert (await good).shape == (3, 16)


async def test_what_is_not_finite_is_an_error_of_its_own_request(make: Make) -> None:
    rig = make(texts=8)
    good, bad = rig.begin("good"), rig.begin("nan")
    with pytest.raises(GenerationFailed, match="not finite"):
        await bad
    assert np.isfinite(await good).all()


async def test_a_full_queue_refuses_at_once(make: Make) -> None:
    rig = make(queue=2, texts=1)
    rig.embedder.shut()
    waiting = [rig.begin("x") for _ in range(3)]
    await rig.stand()
    with pytest.raises(Overloaded) as refused:
        await rig.begin("y")
    assert 1 <= refused.value.retry_after_s <= 60
    rig.embedder.passes.release(100)
    with anyio.fail_after(WAIT_S):
        for one in waiting:
            await one
    await rig.begin("y")


async def test_a_stopped_engine_lets_nobody_wait(make: Make) -> None:
    rig = make(texts=1)
    rig.embedder.shut()
    waiting = rig.begin("x", "y", "z")
    await rig.stand()
    rig.embedder.passes.release(1)
    await rig.client.stop(5.0)
    with pytest.raises(GenerationFailed, match="stopped"):
        await waiting
    with pytest.raises(ShuttingDown):
        await rig.begin("x")


async def test_a_drain_waits_for_who_is_under_way_and_then_lets_them_go(make: Make) -> None:
    rig = make(texts=1)
    model = EmbeddingModel("scripted", ENCODER, rig.client, rig.embedder.info, 0.0)
    embeddings = Embeddings(Models(Fixed([model])))
    rig.embedder.shut()
    waiting = asyncio.create_task(embeddings.embed(LOCAL, model, [ENCODER.encode("x")]))
    await rig.stand()
    with anyio.move_on_after(0.01) as scope:
        await embeddings.rest()
    assert scope.cancelled_caught
    embeddings.close()
    with anyio.fail_after(WAIT_S):
        await embeddings.rest()
    with pytest.raises(ShuttingDown):
        await waiting


async def test_what_a_model_cannot_read_is_refused_with_the_text_that_it_is(make: Make) -> None:
    rig = make()
    model = EmbeddingModel("scripted", ENCODER, rig.client, rig.embedder.info, 0.0)
    good = ENCODER.encode("x")
    for wrong, kind, words in (
        (ENCODER.encode("x" * 64), ContextTooLong, "shorten input\\[1\\]"),
        (np.empty(0, np.int32), InvalidRequest, "input\\[1\\]: an empty text"),
        (np.array([1, 5000], np.int32), InvalidRequest, "input\\[1\\]: a token beyond"),
    ):
        with pytest.raises(kind, match=words) as refused:
            check_lengths(model, [good, wrong], "input")
        assert refused.value.param == "input[1]"
    most = [np.zeros(60, np.int32)] * (MOST_TOKENS // 60 + 1)
    with pytest.raises(InvalidRequest, match="more than 300000"):
        check_lengths(model, most, "input")
