"""Foreign tools and results in our words."""

import base64
from typing import Any

import mcp_types as t
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions.items import Attachment, ToolSpec
from tenuto.tools.host.results import shortened, to_result, to_tool
from tenuto.tools.spec import Annotations, Tool, ToolResult


def text(value: str) -> t.TextContent:
    return t.TextContent(type="text", text=value)


def result(*content: t.ContentBlock, **more: Any) -> ToolResult:
    return to_result(t.CallToolResult(content=list(content), **more), limit=100)


def test_texts_are_joined_by_newlines() -> None:
    assert result(text("a"), text("b")) == ToolResult("a\nb")


def test_structured_content_is_kept_and_is_the_text_where_there_is_none() -> None:
    assert result(structured_content={"n": "é"}) == ToolResult('{"n": "é"}', structured={"n": "é"})
    assert result(text("three"), structured_content={"n": 3}) == ToolResult("three", structured={"n": 3})


def test_structured_content_over_the_limit_is_dropped() -> None:
    assert result(text("short"), structured_content={"n": "x" * 100}) == ToolResult("short")


@given(st.binary(max_size=50))
def test_what_is_no_text_is_named_with_its_type_and_size(data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    image = t.ImageContent(type="image", data=encoded, mime_type="image/png")
    audio = t.AudioContent(type="audio", data=encoded, mime_type="audio/wav")
    assert result(image, audio).text == f"[image: image/png, {len(data)} bytes]\n[audio: audio/wav, {len(data)} bytes]"


def test_a_resource_is_named_and_its_text_is_read() -> None:
    link = t.ResourceLink(type="resource_link", name="a", uri="file:///a", mime_type="text/csv", size=7)
    blob = t.BlobResourceContents(uri="file:///b", blob="AAAA")
    file = t.TextResourceContents(uri="file:///c", text="inside")
    embedded = [t.EmbeddedResource(type="resource", resource=each) for each in (blob, file)]
    answer = t.CallToolResult(content=[link, *embedded])
    assert to_result(answer).text.splitlines() == [
        "[resource: file:///a, text/csv, 7 bytes]",
        "[resource: file:///b, type unknown, 3 bytes]",
        "[resource: file:///c]",
        "inside",
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no luck", "Error: no luck"),
        ("Error: no luck", "Error: no luck"),
        ('{"error": "no luck"}', '{"error": "no luck"}'),
        ("", "Error: the tool failed and said nothing"),
    ],
)
def test_a_failure_is_seen_in_its_text(said: str, shown: str) -> None:
    assert result(text(said), is_error=True) == ToolResult(shown, is_error=True)


@given(st.text(max_size=200), st.integers(0, 100))
def test_a_long_text_keeps_head_and_tail(value: str, limit: int) -> None:
    short = shortened(value, limit)
    if len(value) <= limit:
        assert short == value
        return
    head, note, tail = short.partition(f"\n[{len(value) - limit} characters omitted]\n")
    assert note
    assert len(head) + len(tail) == limit
    assert value.startswith(head)
    assert value.endswith(tail)


def test_hints_that_are_absent_mean_what_the_protocol_says() -> None:
    """https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations"""
    schema = {"type": "object"}
    assert to_tool(t.Tool(name="a", input_schema=schema)) == Tool(ToolSpec("a", "", schema))
    hints = t.ToolAnnotations(title="A", read_only_hint=True, destructive_hint=False, open_world_hint=False)
    assert to_tool(t.Tool(name="a", input_schema=schema, annotations=hints)).annotations == Annotations(
        title="A", read_only=True, idempotent=False, destructive=False, open_world=False
    )


def test_what_is_no_text_is_kept_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.tools.host.results.MAX_ATTACHMENT_CHARACTERS", 10)
    image = t.ImageContent(type="image", data="AAAA", mime_type="image/png")
    large = t.AudioContent(type="audio", data="A" * 12, mime_type="audio/wav")
    link = t.ResourceLink(type="resource_link", name="n", uri="a:b")
    kept = result(text("a"), image, large, link)
    assert kept.attachments == (
        Attachment("image", "image/png", data="AAAA"),
        Attachment("file", "application/octet-stream", uri="a:b"),
    )
    assert "[audio: audio/wav, 9 bytes]" in kept.text
