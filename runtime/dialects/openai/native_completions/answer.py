"""Raw completions in llama-server's own form: whole, or as the events of a stream. No I/O."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, RootModel

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.openai.completions.answer import Text
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.native_completions.request import NativeCompletionRequest
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.http.sse import frame, one_line
from tenuto.runtime.loop.events import RoundUsage
from tenuto.runtime.loop.raw import RawPiece, RawRun

StopType = Literal["eos", "limit", "word"]


class Timings(Shape):
    """How long the prompt and the text took, in tokens and milliseconds."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class GenerationSettings(Shape):
    """How the tokens were chosen."""

    n_predict: int
    seed: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    stop: list[str]


class NativePiece(Shape):
    """A piece of a text in a stream."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False]


class NativeText(Shape):
    """A text; in a stream its end, with no content."""

    index: int
    content: str
    tokens: list[int] = Field(description="With `return_tokens`.")
    stop: Literal[True]
    model: str
    prompt: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    generation_settings: GenerationSettings
    has_new_line: bool
    truncated: bool = Field(description="Never: a prompt that is too long is an error.")
    stop_type: StopType
    stopping_word: str
    timings: Timings


class NativeAnswer(RootModel[NativeText | list[NativeText]]):
    """A text, or a list of them, as the prompt is."""


class NativeForm:
    """What is sent of the texts of one request."""

    def __init__(self, asked: NativeCompletionRequest) -> None:
        self._asked = asked
        self._texts = [Text(text) for text in asked.completion.texts]

    def whole(self, texts: Sequence[Text], runs: Sequence[RawRun]) -> bytes:
        """The unstreamed answer, once all texts are whole."""
        answers = [
            self._end(index, text, run, "".join(text.pieces))
            for index, (text, run) in enumerate(zip(texts, runs, strict=True))
        ]
        return NativeAnswer(answers if self._asked.several else answers[0]).model_dump_json().encode()

    def opening(self, index: int) -> bytes:
        """Nothing comes before a text."""
        del index
        return b""

    def piece(self, index: int, piece: RawPiece) -> bytes:
        """More of a text."""
        self._texts[index].add(piece)
        part = NativePiece(index=index, content=piece.text, tokens=list(piece.tokens), stop=False)
        return frame(one_line(part.encode()))

    def ending(self, index: int, run: RawRun) -> bytes:
        """Why a text ended, and what it took."""
        return frame(one_line(self._end(index, self._texts[index], run, "").encode()))

    def closing(self, runs: Sequence[RawRun]) -> bytes:
        """Nothing comes after all texts."""
        del runs
        return b""

    def failure(self, error: TenutoError) -> bytes:
        """What went wrong."""
        return frame(one_line(ERRORS.told(error).encode()))

    def _end(self, index: int, text: Text, run: RawRun, content: str) -> NativeText:
        usage, raw, codec = run.usage, text.wanted.raw, run.model.codec
        stop: StopType = "limit" if run.was_cut else "word" if run.stopped_by is not None else "eos"
        sampling = raw.sampling
        return NativeText(
            index=index,
            content=content,
            tokens=text.tokens if self._asked.returns_tokens else [],
            stop=True,
            model=run.model.id,
            prompt=codec.detokenize(raw.prompt),
            tokens_predicted=usage.sampled,
            tokens_evaluated=usage.prompt,
            tokens_cached=usage.cached,
            generation_settings=GenerationSettings(
                n_predict=self._asked.n_predict,
                seed=sampling.seed,
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
                stop=list(raw.stop),
            ),
            has_new_line="\n" in "".join(text.pieces),
            truncated=False,
            stop_type=stop,
            stopping_word=run.stopped_by or "",
            timings=timings(usage),
        )


def timings(usage: RoundUsage) -> Timings:
    """The figures of a text. The first token costs no step of its own."""
    first = 1000 * (usage.first_token_s or usage.total_s)
    rest = max(0.0, 1000 * usage.total_s - first)
    read, said = usage.prompt - usage.cached, usage.sampled
    return Timings(
        cache_n=usage.cached,
        prompt_n=read,
        prompt_ms=first,
        prompt_per_token_ms=_ratio(first, read),
        prompt_per_second=_ratio(1000 * read, first),
        predicted_n=said,
        predicted_ms=rest,
        predicted_per_token_ms=_ratio(rest, said - 1),
        predicted_per_second=_ratio(1000 * (said - 1), rest),
    )


def _ratio(of: float, to: float) -> float:
    return of / to if to > 0 and of > 0 else 0.0
