"""Images in the engine: fed whole and in turn, while everybody else goes on; with the same tokens whatever happens."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.images import Embeddings, ImageEncoder, Piece
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, LlamaTokenizer, Model, Projector
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Residency, Round, Stopped
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.sessions.image_tokens import spans_in
from tenuto.sessions.items import Attachment, Item, UserItem
from tenuto.sessions.tokens import Tokens
from tests.patience import HANGS_S
from tests.pipelines.pictures import picture
from tests.pipelines.tiny_vision import KINDS, TEMPLATE, Files, Kind, tiny_vision
from tests.runtime.engine.rig import Reading

COUNT = 8


class Gated:
    """The encoder behind a gate, which may be shut, and may break an image."""

    def __init__(self, encoder: ImageEncoder) -> None:
        self._encoder = encoder
        self._waiting: list[Callable[[], None]] = []
        self.is_shut = False
        self.broken: str | None = None
        self.asked = threading.Event()
        self._lock = threading.Lock()

    def embeddings(self, piece: Piece, ready: Callable[[], None]) -> Embeddings | None:
        if piece.image.data == self.broken:
            raise GenerationFailed("this image is broken")
        with self._lock:
            self.asked.set()
            if self.is_shut:
                self._waiting.append(ready)
                return None
        return self._encoder.embeddings(piece, ready)

    def open(self) -> None:
        with self._lock:
            self.is_shut = False
            waiting, self._waiting = self._waiting, []
        for ready in waiting:
            ready()


@dataclass
class Rig:
    """An engine over a model that reads images."""

    codec: TemplateCodec
    gate: Gated
    engine: EngineClient
    answers: dict[str, list[int]] = field(default_factory=dict)

    def prompt(self, *seeds: int, text: str = "look") -> tuple[list[int], tuple[Piece, ...]]:
        items: list[Item] = [
            UserItem(text, tuple(Attachment("image", "image/png", picture(seed)) for seed in seeds)),
        ]
        rendered = self.codec.suffix([], items, [], ended=False)
        return [*rendered.items[0], *rendered.opening], self.codec.pieces(items)

    def begin(
        self, sequence: str, tokens: Sequence[int], pieces: Sequence[Piece], count: int = COUNT, known: int = 0
    ) -> Reading:
        whole = Tokens(tokens)
        stream = self.engine.submit(
            sequence,
            tokens[known:],
            Round(count, Sampling(), frozenset()),
            principal="alice",
            known=whole.prefix(known),
            whole=lambda: whole,
            pieces=pieces,
        )
        reading = Reading(stream, list(tokens))
        reading.task = asyncio.create_task(reading.follow())
        return reading

    async def answer(self, sequence: str, *seeds: int, text: str = "look") -> tuple[list[int], Stopped]:
        reading = self.begin(sequence, *self.prompt(*seeds, text=text))
        stopped = await reading.stopped()
        return reading.tokens, stopped


@pytest.fixture(scope="module", params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    kind: Kind = request.param
    return tiny_vision(tmp_path_factory.mktemp(kind), kind)


Make = Callable[..., Rig]


@pytest.fixture
async def make(files: Files) -> AsyncIterator[Make]:
    rigs: list[Rig] = []

    def begin(slots: int = 3, host: int = 1 << 24) -> Rig:
        model = Model(files.model)
        projector = Projector(files.projector, model, threads=1)
        codec = TemplateCodec("tiny", LlamaTokenizer(model), TEMPLATE, images=projector)
        backend = LlamaBackend(model, LlamaSettings(slots, 512, 1, 32), projector)
        gate = Gated(projector)
        thread = Engine(Pipeline(codec, backend, images=gate), EngineSettings(16, host))
        rigs.append(Rig(codec, gate, EngineClient("tiny", slots, thread)))
        return rigs[-1]

    yield begin
    for rig in rigs:
        rig.gate.open()
        await rig.engine.stop()


async def test_images_are_answered_the_same_alone_and_among_others(make: Make) -> None:
    rig = make()
    alone = [(await rig.answer("a", *seeds))[0] for seeds in ((1,), (2, 3), (), (2,))]
    for sequence in "abcd":
        rig.engine.release(sequence)
    readings = [
        rig.begin(name, *rig.prompt(*seeds)) for name, seeds in zip("abcd", ((1,), (2, 3), (), (2,)), strict=True)
    ]
    for reading, answer in zip(readings, alone, strict=True):
        await reading.stopped()
        assert reading.tokens == answer
    assert len({tuple(answer) for answer in alone}) == 4


async def test_a_paused_sequence_goes_on_and_computes_only_what_is_new(make: Make) -> None:
    rig = make()
    tokens, pieces = rig.prompt(1)
    said = (await rig.answer("a", 1))[0]
    more = rig.codec.tokenize(" and then?")
    whole = [*tokens, *said, *more]
    resumed = rig.begin("a", whole, pieces, known=len(tokens) + len(said))
    usage = (await resumed.stopped()).usage
    assert (usage.computed, usage.cached, usage.residency) == (
        len(more) + 1,
        len(whole) - len(more) - 1,
        Residency.DEVICE,
    )
    anew = rig.begin("b", whole, pieces)
    await anew.stopped()
    assert anew.tokens == resumed.tokens


async def test_a_cache_with_an_image_comes_back_from_host_memory(make: Make) -> None:
    rig = make(slots=1)
    first, _ = await rig.answer("a", 1)
    await rig.answer("b", 2)
    again, stopped = await rig.answer("a", 1)
    assert again == first
    assert stopped.usage.residency is Residency.HOST
    assert stopped.usage.computed < 16


async def test_what_has_no_cache_any_more_is_computed_again(make: Make) -> None:
    rig = make(slots=1, host=0)
    first, _ = await rig.answer("a", 1)
    tokens, pieces = rig.prompt(1)
    await rig.answer("b", 2)
    reading = rig.begin("a", [*tokens, *first], pieces, known=len(tokens))
    stopped = await reading.stopped()
    assert stopped.usage.residency is Residency.NONE
    anew = rig.begin("c", [*tokens, *first], pieces)
    await anew.stopped()
    assert reading.tokens == anew.tokens


async def test_another_sequence_takes_the_prefix_up_to_where_the_images_differ(make: Make) -> None:
    rig = make()
    text = "a text that is long enough to be worth sharing"
    alone, _ = await rig.answer("a", 1, 3, text=text)
    tokens, pieces = rig.prompt(1, 2, text=text)
    second = [begin for begin, span in spans_in(tokens) if span in {p.span for p in rig.codec.pieces([_said(2)])}]
    forked = rig.begin("b", tokens, pieces)
    assert (await forked.stopped()).usage.cached == second[0]
    same, stopped = await rig.answer("c", 1, 3, text=text)
    assert same == alone
    assert stopped.usage.computed == 1
    rig.engine.release("a")
    rig.engine.release("b")
    rig.engine.release("c")
    anew = rig.begin("d", tokens, pieces)
    await anew.stopped()
    assert forked.tokens == anew.tokens


async def test_others_go_on_while_an_image_is_looked_at(make: Make) -> None:
    rig = make()
    rig.gate.is_shut = True
    looking = rig.begin("a", *rig.prompt(1))
    for _ in range(2):
        assert (await rig.answer("b"))[1].usage.sampled == COUNT
    assert not looking.tokens
    rig.gate.open()
    await looking.stopped()
    assert looking.tokens == (await rig.answer("c", 1))[0]


async def test_a_round_that_waits_for_an_image_is_cancelled_at_once(make: Make) -> None:
    rig = make()
    rig.gate.is_shut = True
    looking = rig.begin("a", *rig.prompt(1))
    assert await asyncio.to_thread(rig.gate.asked.wait, HANGS_S)
    looking.stream.cancel()
    assert (await looking.stopped()).usage.sampled == 0
    rig.gate.open()
    assert (await rig.answer("a", 1))[0] == (await rig.answer("b", 1))[0]


async def test_an_image_that_breaks_fails_its_own_round_alone(make: Make) -> None:
    rig = make()
    rig.gate.broken = picture(1)
    failing, going = rig.begin("a", *rig.prompt(1)), rig.begin("b", *rig.prompt(2))
    assert "this image is broken" in (await failing.failed()).error
    await going.stopped()
    rig.gate.broken = None
    assert len((await rig.answer("a", 1))[0]) == COUNT


async def test_an_image_that_did_not_come_with_its_tokens_is_refused(make: Make) -> None:
    rig = make()
    tokens, pieces = rig.prompt(1)
    assert "is missing" in (await rig.begin("a", tokens, ()).failed()).error
    begin, span = next(spans_in(tokens))
    assert "is missing" in (await rig.begin("a", tokens[: begin + len(span) // 2], pieces).failed()).error
    await rig.answer("a", 1)
    cut = rig.begin("a", [*tokens[: begin + 2], 5], pieces, known=begin + 2)
    assert "in the middle of an image" in (await cut.failed()).error


def _said(seed: int) -> UserItem:
    return UserItem("", (Attachment("image", "image/png", picture(seed)),))
