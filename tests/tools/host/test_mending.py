"""A malformed tool costs itself and no other; a listing that is well-formed is not touched."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ListToolsResult

from tenuto.tools.host.mending import mend_listing

GOOD: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons"])


def mended(tool: Any, **more: Any) -> list[Any]:
    result = {**more, "tools": [GOOD, deepcopy(tool)]}
    mend_listing(result)
    assert result["tools"][0] == GOOD
    return list(result["tools"][1:])


@pytest.mark.parametrize("more", [{}, MODERN])
def test_a_schema_without_a_type_gets_the_one_that_it_must_have(more: dict[str, Any]) -> None:
    assert mended({"name": "a", "inputSchema": {"properties": {}}}, **more) == [
        {"name": "a", "inputSchema": {"type": "object", "properties": {}}}
    ]
    assert mended({"name": "a"}, **more) == [{"name": "a", "inputSchema": {"type": "object"}}]


def test_what_is_not_essential_goes_where_it_is_malformed() -> None:
    tool = {"name": "a", "description": "does", "inputSchema": {"type": "object"}, "annotations": 5, "title": "A"}
    assert mended(tool) == [{"name": "a", "description": "does", "inputSchema": {"type": "object"}}]


@pytest.mark.parametrize(
    "tool", [{"inputSchema": {"type": "object"}}, {"name": "a", "inputSchema": {"type": "string"}}, 5]
)
def test_a_tool_that_cannot_be_mended_is_left_out(tool: Any) -> None:
    assert mended(tool) == []


def test_other_results_are_left_alone() -> None:
    result = {"content": [{"type": "text", "text": "tools"}], "structuredContent": {"tools": [5]}}
    before = deepcopy(result)
    mend_listing(result)
    assert result == before


@given(st.lists(json_values | st.dictionaries(keys, json_values), max_size=4))
def test_every_listing_can_be_read_afterwards(tools: list[Any]) -> None:
    result = {"tools": [*tools, GOOD]}
    mend_listing(result)
    assert [tool.name for tool in ListToolsResult.model_validate(result, by_name=False).tools][-1] == "good"
