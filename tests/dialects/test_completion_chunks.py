"""The chunks of text completions are what the form that describes them makes of them."""

import pytest

from tenuto.runtime.dialects.openai.completions.answer import TextChunks, closing
from tenuto.runtime.dialects.openai.completions.shapes import CompletionAnswer, CompletionEnvelope
from tenuto.runtime.http.sse import one_line
from tenuto.runtime.loop.events import RoundUsage, TextLogprob
from tenuto.runtime.loop.raw import RawPiece

ENVELOPE = CompletionEnvelope(id="cmpl-1", object="text_completion", created=1_700_000_000, model="100%d")
LIKELY = TextLogprob("word", b"word", -0.5, (("word", b"word", -0.5), ("no", b"no", float("-inf"))))


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("include_usage", [False, True])
def test_every_chunk_is_what_its_form_makes_of_it(include_usage: bool, logprobs: bool) -> None:
    """Most chunks are written from templates: the form that describes them must lose nothing and add nothing."""
    chunks = TextChunks(ENVELOPE, 3, include_usage=include_usage, logprobs=logprobs)
    figures = [RoundUsage(prompt=4, sampled=2, cached=1)] if include_usage else None
    frames = [
        chunks.echo("Once\u2028upon"),
        chunks.piece(RawPiece(" a \u00e9", (LIKELY,))),
        chunks.piece(RawPiece("", ())),
        chunks.ending("length"),
        closing(ENVELOPE, figures),
    ]
    lines = b"".join(frames).split(b"\n")
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: {")]
    assert len(data) == 4 + include_usage
    assert [one_line(CompletionAnswer.model_validate_json(one).encode()) for one in data] == data
