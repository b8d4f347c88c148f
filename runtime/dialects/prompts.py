"""Raw prompts as tokens."""

from collections.abc import Sequence

from tenuto.pipelines.base import Codec


def prompt_tokens(codec: Codec, prompt: str | Sequence[int]) -> tuple[int, ...]:
    """A text that begins a sequence, as content: no control token comes of it. Ids are taken as they are."""
    if not isinstance(prompt, str):
        return tuple(prompt)
    bos = codec.info.bos
    return (*(() if bos is None else (bos,)), *codec.tokenize(prompt))
