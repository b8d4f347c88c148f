"""The formats of DeepSeek: V3 and R1, with the arguments in a fence, V3.1, and from V3.2 on arguments in tags."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_OPENER, _CLOSER = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL_OPEN, _SEP, _CALL_CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCED = NamedBody(before=f"function{_SEP}", between="\n```json\n", after="\n```")
_BARE = NamedBody(between=_SEP)


_TAG = "｜DSML｜"
_TAGS = Tags(
    name_close='">\n', key_open=f'<{_TAG}parameter name="', key_close='" string="true">',
    other_key_close='" string="false">', value_close=f"</{_TAG}parameter>\n",
)  # fmt: skip


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if f'<{_TAG}invoke name="f">' in surroundings.call:
        return (tagged if f"<{_TAG}function_calls>" in surroundings.call else tagged_later)(surroundings)
    if f"{_CALL_OPEN}function{_SEP}f\n```json\n" in surroundings.call:
        return fenced(surroundings)
    if f"{_CALL_OPEN}f{_SEP}{{" in surroundings.call:
        return bare(surroundings)
    # Some of its templates write calls in an order of their own, or none.
    return fenced(surroundings) if _CALL_OPEN in surroundings.template else None


def fenced(surroundings: Surroundings) -> CallFormat:
    """That of V3 and R1."""
    return _format("deepseek", surroundings, _FENCED, "\n")


def bare(surroundings: Surroundings) -> CallFormat:
    """That of V3.1."""
    return _format("deepseek-v3.1", surroundings, _BARE, "")


def tagged(surroundings: Surroundings) -> CallFormat:
    """That of V3.2."""
    return _tagged("deepseek-v3.2", surroundings, "function_calls")


def tagged_later(surroundings: Surroundings) -> CallFormat:
    """That of V4."""
    return _tagged("deepseek-v4", surroundings, "tool_calls")


def _tagged(name: str, surroundings: Surroundings, section: str) -> CallFormat:
    block = Block(
        TaggedBody(_TAGS), opener=f"<{_TAG}{section}>\n", call_open=f'<{_TAG}invoke name="',
        call_close=f"</{_TAG}invoke>", separator="\n", closer=f"\n</{_TAG}{section}>",
    )  # fmt: skip
    return CallFormat(name, surroundings.vocabulary, (block,), reasoning_of(surroundings))


def _format(name: str, surroundings: Surroundings, body: NamedBody, separator: str) -> CallFormat:
    section = Block(body, _OPENER, _CALL_OPEN, _CALL_CLOSE, separator, _CLOSER)
    alone = Block(body, call_open=_CALL_OPEN, call_close=_CALL_CLOSE)
    return CallFormat(name, surroundings.vocabulary, (section, alone), reasoning_of(surroundings))
