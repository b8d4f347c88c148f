"""The file of --warm: what it may say, and how what is wrong is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import ConfigurationError
from tenuto.runtime.engine.messages import THE_SERVER
from tenuto.runtime.warm_file import read_warm_file
from tenuto.sessions.items import SystemItem, UserItem

SAID = [{"role": "system", "content": "You are the clerk."}, {"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "berth_of", "parameters": {"type": "object"}}}
ENTRY: dict[str, Any] = {"name": "clerk", "messages": SAID[:1], "tools": [TOOL]}


def written(folder: Path, value: Any) -> Path:
    path = folder / "warm.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_prefix_is_what_requests_with_it_have_in_common(tmp_path: Path) -> None:
    (prefix,) = read_warm_file(written(tmp_path, [{**ENTRY, "model": "m"}]), set())
    assert (prefix.name, prefix.model, prefix.principal) == ("clerk", "m", THE_SERVER)
    for turn in prefix.turns:
        system, said = turn.items
        assert system == SystemItem("You are the clerk.")
        assert isinstance(said, UserItem)
        assert [tool.name for tool in turn.tools.client] == ["berth_of"]
    assert len({turn.items[-1] for turn in prefix.turns}) == len(prefix.turns)


def test_tools_alone_and_the_servers_own_are_prefixes_too(tmp_path: Path) -> None:
    told = [{"name": "tools", "tools": [TOOL]}, {"name": "own", "messages": SAID[:1]}]
    tools, own = read_warm_file(written(tmp_path, told), set())
    assert tools.turns[0].tools.given
    assert not own.turns[0].tools.given, "those that the server has by default"


def test_one_of_several_principals_is_each_ones_own(tmp_path: Path) -> None:
    told = read_warm_file(written(tmp_path, [{**ENTRY, "principals": ["ada", "bob", "ada"]}]), {"ada", "bob"})
    assert [prefix.principal for prefix in told] == ["user-ada", "user-bob"]
    assert [turn.principal.id for turn in told[1].turns] == ["user-bob"] * len(told[1].turns)


def test_an_empty_file_names_nothing(tmp_path: Path) -> None:
    assert read_warm_file(written(tmp_path, []), set()) == ()


BROKEN: dict[str, tuple[Any, str]] = {
    "too many": ([{**ENTRY, "name": str(number)} for number in range(65)], "has 65 prefixes; 64 are the most"),
    "no list of messages": ([{**ENTRY, "messages": "x"}], "messages: must be a list"),
    "no JSON": ("[{", "not JSON: "),
    "no list": ({}, "must be a JSON list of prefixes"),
    "no object": (["clerk"], "prefix 0: must be a JSON object"),
    "no name": ([{"messages": SAID[:1]}], "prefix 0: name: "),
    "one name twice": ([ENTRY, ENTRY], "prefix 1 ('clerk'): name: another prefix is already called that"),
    "an unknown field": ([{**ENTRY, "stream": True}], "prefix 0 ('clerk'): stream: not a field of a prefix"),
    "nothing to read": ([{"name": "none"}], "prefix 0 ('none'): messages: there are neither messages nor tools"),
    "a user's words": ([{**ENTRY, "messages": SAID}], "messages[1].role: only system and developer"),
    "a wrong message": ([{**ENTRY, "messages": [{"role": "system", "content": 7}]}], "prefix 0 ('clerk'): messages[0]"),
    "a wrong tool": ([{**ENTRY, "tools": [{"type": "function"}]}], "prefix 0 ('clerk'): tools[0].function"),
    "a stranger": ([{**ENTRY, "principals": ["eve"]}], "principals: no key of [[keys]] has the name 'eve'"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, broken: str) -> None:
    text, told = BROKEN[broken]
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        read_warm_file(path, {"ada"})
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_warm_file(tmp_path / "none.json", set())
