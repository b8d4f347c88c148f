"""Filling in the middle: what stands before and after a gap, as the tokens that a model goes on from to fill it.

The order is llama-server's (`format_prompt_infill`), which is that of https://arxiv.org/abs/2409.12186.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_PREFIX = ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>")
_SUFFIX = ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>")
_MIDDLE = ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>")
_BEGIN, _HOLE, _END = "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"  # DeepSeek's
_REPOSITORY = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
_FILE = ("<|file_sep|>",)

_PROJECT, _CURRENT, _UNNAMED = "myproject\n", "filename\n", "tmp"
_SNIPPET = "\n\n--- snippet ---\n\n"
_BEFORE, _AFTER = 3, 1
"""How what room there is goes to what stands before the gap and after it, where both are long."""


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """The tokens that say what is what. Some models know a repository's name and its other files too."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of another file."""

    text: str
    name: str = _UNNAMED


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands around a gap. `begun` is what it begins with; `snippets` None: no repository is told of at all."""

    before: str
    after: str
    begun: str = ""
    snippets: Sequence[Snippet] | None = None


def infill_tokens(markers: Mapping[str, int]) -> InfillTokens | None:
    """Those of a vocabulary, by the texts that well-known families have; None where one is missing."""

    def first(texts: Sequence[str]) -> int | None:
        return next((markers[text] for text in texts if text in markers), None)

    prefix, suffix, middle = first(_PREFIX), first(_SUFFIX), first(_MIDDLE)
    if prefix is None and _HOLE in markers:
        prefix, suffix, middle = (markers.get(text) for text in (_BEGIN, _HOLE, _END))
    if prefix is None or suffix is None or middle is None:
        return None
    return InfillTokens(prefix, suffix, middle, first(_REPOSITORY), first(_FILE))


def infill_prompt(
    tokens: InfillTokens, gap: Gap, tokenize: Callable[[str], list[int]], *, bos: int | None, room: int
) -> list[int]:
    """What a model goes on from, in at most `room` tokens: of what is too long, the parts next to the gap stay.

    Snippets have what is left; the last of them stand nearest.
    """
    begun = tokenize(gap.begun)
    before, after = _fitted(tokenize(gap.before), tokenize(gap.after), room - len(begun) - 4)
    lead = [] if bos is None else [bos]
    prompt = [*lead, tokens.prefix, *before, *begun, tokens.suffix, *after, tokens.middle]
    others = [] if gap.snippets is None else _others(tokens, gap.snippets, tokenize)
    left = max(0, room - len(prompt))
    return [*others[max(0, len(others) - left) :], *prompt]


def _fitted(before: list[int], after: list[int], room: int) -> tuple[list[int], list[int]]:
    room = max(0, room)
    if len(before) + len(after) <= room:
        return before, after
    share = room * _AFTER // (_BEFORE + _AFTER)
    kept_after = min(len(after), max(share, room - len(before)))
    return before[max(0, len(before) - (room - kept_after)) :], after[:kept_after]


def _others(tokens: InfillTokens, snippets: Sequence[Snippet], tokenize: Callable[[str], list[int]]) -> list[int]:
    """The repository, each snippet behind the name of its file, and then the name of this one."""
    found: list[int] = []
    if tokens.repository is not None:
        found += [tokens.repository, *tokenize(_PROJECT)]
    for snippet in snippets:
        lead = tokenize(_SNIPPET) if tokens.file is None else [tokens.file, *tokenize(f"{snippet.name}\n")]
        found += [*lead, *tokenize(snippet.text)]
    if tokens.file is not None:
        found += [tokens.file, *tokenize(_CURRENT)]
    return found
