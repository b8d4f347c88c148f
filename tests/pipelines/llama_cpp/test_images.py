"""Models that read images: small random ones of each way in which a projector hands its embeddings to the weights.

The same tokens come alone, beside others, after a pause, of a fork, cut back, and out of a snapshot; and they are those
that the library's own way of reading the same image gives.
"""

import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp as lib
import numpy as np
import pytest
from llama_cpp import mtmd_cpp

from tenuto.errors import GenerationFailed, ModelLoadFailed
from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.image_files import decoded
from tenuto.pipelines.images import Embeddings, Image, ImageText, Piece, UnreadableImage
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model, Projector
from tenuto.sessions.image_tokens import spans_in
from tests.patience import HANGS_S
from tests.pipelines.pictures import picture
from tests.pipelines.tiny_vision import KINDS, Files, Kind, tiny_vision

SLOTS, CELLS, ANSWER = 4, 512, 8
BEFORE, AFTER = list(b"What is this? "), list(b" Say it.")


@dataclass
class Seeing:
    """A model with its projector."""

    kind: Kind
    files: Files
    model: Model
    projector: Projector
    backend: LlamaBackend

    def read(self, seed: int) -> ImageText:
        return self.projector.read(Image(str(seed), picture(seed)))

    def prompt(self, *seeds: int) -> list[int]:
        return [*BEFORE, *(token for seed in seeds for token in self.read(seed).tokens), *AFTER]

    def made(self, piece: Piece) -> Embeddings:
        ready = threading.Event()
        while (made := self.projector.embeddings(piece, ready.set)) is None:
            assert ready.wait(HANGS_S)
            ready.clear()
        return made

    def feed(self, slot: int, tokens: Sequence[int], seeds: Sequence[int], held: int = 0, chunk: int = 7) -> int:
        """Feed tokens in chunks, and images between them; the token sampled after the last."""
        pieces = {piece.span: piece for seed in seeds for piece in self.read(seed).pieces}
        sampler = self.backend.sampler(Sampling())
        begins = dict(spans_in(tokens))
        at, sampled = 0, None
        while at < len(tokens):
            if at in begins:
                span = begins[at]
                row = Row(slot, held, span, None, None, self.made(pieces[span]))
            else:
                end = min([at + chunk, len(tokens), *(begin for begin in begins if begin > at)])
                row = Row(slot, held, tokens[at:end], sampler if end == len(tokens) else None)
            [sampled] = self.backend.collect(self.backend.launch([row]))
            at, held = at + len(row.tokens), held + len(row.tokens)
        assert isinstance(sampled, int)
        return sampled

    def go_on(self, slots: Sequence[int], sampled: Sequence[int], held: Sequence[int]) -> list[list[int]]:
        """Let several slots answer side by side."""
        samplers = [self.backend.sampler(Sampling()) for _ in slots]
        answers = [[token] for token in sampled]
        for step in range(ANSWER):
            rows = [
                Row(slot, at + step, [answer[-1]], sampler)
                for slot, at, answer, sampler in zip(slots, held, answers, samplers, strict=True)
            ]
            for answer, token in zip(answers, self.backend.collect(self.backend.launch(rows)), strict=True):
                assert isinstance(token, int)
                answer.append(token)
        return answers

    def alone(self, *seeds: int, chunk: int = 7) -> list[int]:
        prompt = self.prompt(*seeds)
        [answer] = self.go_on([0], [self.feed(0, prompt, seeds, chunk=chunk)], [len(prompt)])
        self.backend.release(0)
        return answer


@pytest.fixture(scope="module", params=KINDS)
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeing]:
    kind: Kind = request.param
    files = tiny_vision(tmp_path_factory.mktemp(kind), kind)
    model = Model(files.model)
    projector = Projector(files.projector, model, threads=1)
    backend = LlamaBackend(model, LlamaSettings(slots=SLOTS, cells=CELLS, threads=1, batch_tokens=32), projector)
    yield Seeing(kind, files, model, projector, backend)
    backend.close()


@pytest.fixture
def clean(seeing: Seeing) -> Iterator[Seeing]:
    yield seeing
    for slot in range(SLOTS):
        seeing.backend.release(slot)


def test_an_answer_is_of_the_image_and_the_same_however_the_text_is_cut(clean: Seeing) -> None:
    assert clean.alone(1) == clean.alone(1, chunk=32)
    assert len({tuple(clean.alone(*seeds)) for seeds in ((), (1,), (2,), (1, 2), (2, 1))}) == 5


def test_answers_are_those_of_the_librarys_own_way(clean: Seeing) -> None:
    for seeds in ((1,), (1, 2)):
        assert clean.alone(*seeds) == _by_the_library(clean, seeds)


def test_answers_are_the_same_side_by_side(clean: Seeing) -> None:
    alone = [clean.alone(1), clean.alone(2), clean.alone()]
    prompts = [clean.prompt(1), clean.prompt(2), clean.prompt()]
    sampled = [clean.feed(slot, prompt, (1, 2)) for slot, prompt in enumerate(prompts)]
    assert clean.go_on([0, 1, 2], sampled, [len(prompt) for prompt in prompts]) == alone


def test_a_cache_is_cut_behind_and_before_an_image(clean: Seeing) -> None:
    first, second = clean.prompt(1, 2), clean.prompt(1, 3)
    clean.go_on([0], [clean.feed(0, first, (1, 2))], [len(first)])
    assert clean.backend.truncate(0, len(first) - 2)
    sampled = clean.feed(0, first[-2:], (), len(first) - 2)
    assert clean.go_on([0], [sampled], [len(first)]) == [clean_answer(clean, (1, 2))]
    kept = len(BEFORE) + len(clean.read(1).tokens)
    assert clean.backend.truncate(0, kept)
    sampled = clean.feed(0, second[kept:], (3,), kept)
    assert clean.go_on([0], [sampled], [len(second)]) == [clean_answer(clean, (1, 3))]


def test_a_fork_and_a_snapshot_go_on_as_what_they_were_made_of(clean: Seeing) -> None:
    alone, prompt = clean.alone(1), clean.prompt(1)
    sampled = clean.feed(0, prompt, (1,))
    kept = clean.backend.snapshot(0)
    clean.go_on([0], [sampled], [len(prompt)])
    clean.backend.fork(0, 1, len(prompt))
    assert clean.go_on([1], [sampled], [len(prompt)]) == [alone]
    clean.backend.release(0)
    clean.backend.restore(3, kept)
    clean.backend.restore(0, kept)
    clean.backend.truncate(1, len(prompt))
    assert clean.go_on([0, 1, 3], [sampled] * 3, [len(prompt)] * 3) == [alone] * 3
    assert clean.backend.truncate(3, len(BEFORE))
    other = clean.prompt(2)[len(BEFORE) :]
    sampled = clean.feed(3, other, (2,), len(BEFORE))
    assert clean.go_on([3], [sampled], [len(BEFORE) + len(other)]) == [clean_answer(clean, (2,))]


def test_a_snapshot_ends_with_an_image(clean: Seeing) -> None:
    prompt = clean.prompt(1)
    begin, span = list(spans_in(prompt))[-1]
    held = begin + len(span)
    pieces = {piece.span: piece for piece in clean.read(1).pieces}
    clean.feed(0, prompt[:begin], (1,))
    clean.backend.collect(clean.backend.launch([Row(0, begin, span, None, None, clean.made(pieces[span]))]))
    clean.backend.restore(1, clean.backend.snapshot(0))
    clean.backend.fork(0, 2, held)
    for slot in (0, 1, 2):
        sampled = clean.feed(slot, prompt[held:], (), held)
        assert clean.go_on([slot], [sampled], [len(prompt)]) == [clean_answer(clean, (1,))]


def test_a_token_can_be_sampled_right_after_an_image(clean: Seeing) -> None:
    tokens = clean.read(1).tokens
    *_, (begin, span) = spans_in(tokens)
    clean.feed(0, [*BEFORE, *tokens[:begin]], (1,))
    made = clean.made(next(piece for piece in clean.read(1).pieces if piece.span == span))
    for sampling in (Sampling(), Sampling(temperature=0.9, seed=1, repetition_penalty=1.1)):
        sampler = clean.backend.sampler(sampling, [*BEFORE, *tokens])
        row = Row(0, len(BEFORE) + begin, span, sampler, None, made)
        [sampled] = clean.backend.collect(clean.backend.launch([row]))
        assert isinstance(sampled, int)
        clean.backend.truncate(0, len(BEFORE) + begin)


def test_an_image_is_fed_alone_and_whole(clean: Seeing) -> None:
    piece = clean.read(1).pieces[0]
    made = clean.made(piece)
    for rows in (
        [Row(0, 0, piece.span, None, None, made), Row(1, 0, BEFORE)],
        [Row(0, 0, piece.span[1:], None, None, made)],
        [Row(0, 0, piece.span)],
        [Row(0, CELLS - 1, piece.span, None, None, made)],
    ):
        with pytest.raises(ValueError, match=r"step|embeddings|vocabulary|holds"):
            clean.backend.launch(rows)


def test_equal_images_have_equal_tokens_and_embeddings(clean: Seeing) -> None:
    other = Projector(clean.files.projector, clean.model, threads=1)
    one, again = clean.read(1), other.read(Image("1", picture(1)))
    assert one == again
    assert not {piece.span for piece in one.pieces} & {piece.span for piece in clean.read(2).pieces}
    clean.projector, mine = other, clean.projector
    anew = clean.made(again.pieces[0])
    clean.projector = mine
    assert np.array_equal(anew.rows, clean.made(one.pieces[0]).rows)


def test_embeddings_are_forgotten_and_made_again_within_their_bytes(clean: Seeing) -> None:
    pieces = [clean.read(seed).pieces[0] for seed in (1, 2)]
    nbytes = clean.made(pieces[0]).nbytes
    clean.projector, mine = (
        Projector(clean.files.projector, clean.model, threads=1, embedding_bytes=nbytes),
        clean.projector,
    )
    try:
        first = clean.made(pieces[0])
        clean.made(pieces[1])
        assert clean.made(pieces[0]) is not first
        clean.projector = Projector(clean.files.projector, clean.model, threads=1, embedding_bytes=8)
        with pytest.raises(GenerationFailed):
            clean.made(pieces[0])
    finally:
        clean.projector = mine


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 1), (1, 400), (400, 7), (33, 70)])
def test_a_picture_of_any_size_is_seen_or_refused_when_it_is_read(clean: Seeing, width: int, height: int) -> None:
    data = picture(1, width, height)
    try:
        read = clean.projector.read(Image(f"{width} x {height}", data))
    except UnreadableImage:
        return
    for piece in read.pieces:
        made = clean.made(piece)
        assert len(made.rows) == len(piece.span)
        assert np.isfinite(made.rows).all()


@pytest.mark.parametrize("data", ["aGk=", "not base64", picture(1)[:200]])
def test_what_is_no_image_is_unreadable_each_time(clean: Seeing, data: str) -> None:
    for _ in range(2):
        with pytest.raises(UnreadableImage):
            clean.projector.read(Image(f"digest of {data}", data))


def test_a_projector_of_another_model_is_refused_in_words(tmp_path: Path, seeing: Seeing) -> None:
    wrong = tmp_path / "mmproj-wrong.gguf"
    wrong.write_bytes(seeing.files.model.read_bytes())
    with pytest.raises(ModelLoadFailed, match="cannot be loaded as the projector"):
        Projector(wrong, seeing.model, threads=1)


def clean_answer(seeing: Seeing, seeds: tuple[int, ...]) -> list[int]:
    """The reference in a slot that is free."""
    prompt = seeing.prompt(*seeds)
    free = next(slot for slot in reversed(range(SLOTS)) if seeing.backend.snapshot(slot).tokens == 0)
    [answer] = seeing.go_on([free], [seeing.feed(free, prompt, seeds)], [len(prompt)])
    seeing.backend.release(free)
    return answer


def _by_the_library(seeing: Seeing, seeds: Sequence[int]) -> list[int]:
    """The answer as llama.cpp's own programs read images: `mtmd_helper_eval_chunks` in a context of its own."""
    parameters = lib.llama_context_default_params()
    parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = CELLS, 64, 64
    parameters.n_threads = parameters.n_threads_batch = 1
    context = lib.llama_init_from_model(seeing.model.pointer, parameters)
    reader = seeing.projector._pointer
    marker = mtmd_cpp.mtmd_get_marker(reader)
    assert marker is not None
    whole = bytes(BEFORE) + marker * len(seeds) + bytes(AFTER)
    text = mtmd_cpp.mtmd_input_text(text=whole, text_len=len(whole), add_special=False, parse_special=True)
    pixels = [np.ascontiguousarray(decoded(picture(seed))) for seed in seeds]
    images = [
        mtmd_cpp.mtmd_bitmap_init(
            one.shape[1], one.shape[0], (ctypes.c_uint8 * one.size).from_buffer_copy(one.tobytes())
        )
        for one in pixels
    ]
    chunks = mtmd_cpp.mtmd_input_chunks_init()
    bitmaps = (ctypes.c_void_p * len(images))(*images)
    assert mtmd_cpp.mtmd_tokenize(reader, chunks, ctypes.byref(text), bitmaps, len(images)) == 0
    past = lib.llama_pos(0)
    assert mtmd_cpp.mtmd_helper_eval_chunks(reader, context, chunks, 0, 0, 64, True, ctypes.byref(past)) == 0
    answer = []
    for step in range(ANSWER + 1):
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), shape=(seeing.model.vocabulary,))
        answer.append(int(logits.argmax()))
        batch = lib.llama_batch_init(1, 0, 1)
        batch.n_tokens, batch.token[0], batch.pos[0] = 1, answer[-1], past.value + step
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
        assert lib.llama_decode(context, batch) == 0
        lib.llama_batch_free(batch)
    mtmd_cpp.mtmd_input_chunks_free(chunks)
    for image in images:
        mtmd_cpp.mtmd_bitmap_free(image)
    lib.llama_free(context)
    return answer
