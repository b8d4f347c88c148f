"""Raw prompts as tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import Codec
from tenuto.pipelines.infill import Gap, Snippet, infill_prompt
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.room import check_length


def prompt_tokens(codec: Codec, prompt: str | Sequence[int]) -> tuple[int, ...]:
    """A text that begins a sequence, as content: no control token comes of it. Ids are taken as they are."""
    if not isinstance(prompt, str):
        return tuple(prompt)
    bos = codec.info.bos
    return (*(() if bos is None else (bos,)), *codec.tokenize(prompt))


def infill_tokens(model: Model, gap: Gap, most: int | None, param: str) -> tuple[int, ...]:
    """What a model goes on from to fill a gap with at most so many tokens, if that is said; else it gets a quarter of
    the context. What of the surroundings does not fit is left out, as whoever asks for this expects.

    Raises:
        InvalidRequest: the model's vocabulary has no tokens for it.
        ContextTooLong: what the gap begins with has no room.
    """
    codec, tokens = model.codec, model.codec.info.infill
    if tokens is None:
        raise InvalidRequest(
            f"{param}: {model.id} cannot fill in the middle of a text: its vocabulary has no tokens for that", param
        )
    answer = min(most or model.context // 4, model.context // 2)
    room, bos = model.context - answer, codec.info.bos
    longest = codec.info.longest_piece * model.context  # what lies farther from the gap cannot be in it

    def near(text: str, *, end: bool) -> str:
        return text if len(text) <= longest else text[-longest:] if end else text[:longest]

    check_length(codec, [gap.begun], model.context)
    snippets = None if gap.snippets is None else list(_nearest(gap.snippets, longest))
    fitted = Gap(near(gap.before, end=True), near(gap.after, end=False), gap.begun, snippets)
    return tuple(infill_prompt(tokens, fitted, codec.tokenize, bos=bos, room=room))


def _nearest(snippets: Sequence[Snippet], characters: int) -> Iterator[Snippet]:
    """What of the snippets can be in a prompt: the last of so many characters."""
    left = sum(len(snippet.text) for snippet in snippets)
    for snippet in snippets:
        left -= len(snippet.text)
        kept = characters - left
        if kept > 0:
            yield snippet if len(snippet.text) <= kept else replace(snippet, text=snippet.text[-kept:])
