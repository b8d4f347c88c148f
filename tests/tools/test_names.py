"""Exported names are valid, stable, and different for different tools."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.tools.names import called_name, exported_name, parted

VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
servers = st.text(alphabet="ab_-", min_size=1, max_size=40)
tools = st.text(max_size=80) | st.text(alphabet="ab_.", max_size=80)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("clock", "now", "clock__now"),
        ("my-files", "read_file", "my-files__read_file"),
        ("a", "b__c", "a__b__c"),
        ("a", "_b", "a___b"),
    ],
)
def test_a_plain_name_is_server_and_tool(server: str, tool: str, name: str) -> None:
    assert exported_name(server, tool) == name


def test_a_long_name_keeps_its_beginning_and_gets_a_hash() -> None:
    name = exported_name("files", "read" * 20)
    assert re.fullmatch(r"files__(read){12}_[0-9a-f]{8}", name)


def test_names_are_the_same_at_every_start() -> None:
    """A session's frozen tool list and a file's permissions name them: they may never change."""
    assert exported_name("fs", "read.file") == "fs__read_file_b8d78bda"
    assert exported_name("a__b", "c") == "a__b__c_a9b8bb5e"


@given(servers, tools)
def test_every_name_is_valid(server: str, tool: str) -> None:
    assert VALID.fullmatch(exported_name(server, tool))


@given(st.sets(st.tuples(servers, tools), max_size=8))
def test_different_tools_have_different_names(pairs: set[tuple[str, str]]) -> None:
    assert len({exported_name(server, tool) for server, tool in pairs}) == len(pairs)


@given(servers, tools)
def test_a_name_that_is_taken_has_others(server: str, tool: str) -> None:
    assert len({exported_name(server, tool, attempt) for attempt in range(5)}) == 5


@pytest.mark.parametrize(
    ("name", "server", "tool"),
    [("clock__now", "clock", "now"), ("a__b__c", "a", "b__c"), ("tool_search", "tenuto", "tool_search")],
)
def test_clients_are_told_of_a_server_and_a_name_for_each_tool_and_may_repeat_them(
    name: str, server: str, tool: str
) -> None:
    assert parted(name) == (server, tool)
    assert called_name(server, tool) == name


def test_a_server_that_is_named_as_this_one_is_does_not_get_its_tools() -> None:
    assert called_name("tenuto", "tool_finder") == exported_name("tenuto", "tool_finder")
    assert exported_name("tool", "_search") != "tool_search" != exported_name("tenuto", "tool_search")
