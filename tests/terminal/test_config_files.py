"""Configuration files of clients and of ours: JSON with comments, changed without a loss; and what is refused."""

import json
import os
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.config_files import jsonc
from tenuto.runtime.terminal.config_files.reading import MOST_BYTES, text_of
from tenuto.runtime.terminal.config_files.writing import BACKUP, change

NAMES = st.text(max_size=6) | st.sampled_from(["a", "b", "servers"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
GAPS = st.lists(st.sampled_from(["", " ", "\n", "\n  ", "\t", "\r\n", "// a, } note\n", "/* [ note, */"]), min_size=1)


def written(value: Any, gaps: Any, *, trailing: bool) -> str:
    """The value as JSON with these gaps between what it is made of, and a comma behind the last of everything."""
    match value:
        case dict():
            made = [
                f"{json.dumps(name)}{next(gaps)}:{next(gaps)}{written(each, gaps, trailing=trailing)}"
                for name, each in value.items()
            ]
            brackets = "{}"
        case list():
            made, brackets = [written(each, gaps, trailing=trailing) for each in value], "[]"
        case _:
            return json.dumps(value)
    inner = "".join(
        f"{next(gaps)}{each}{next(gaps)}{',' if index < len(made) or trailing else ''}"
        for index, each in enumerate(made, 1)
    )
    return f"{brackets[0]}{inner}{next(gaps)}{brackets[1]}"


@given(OBJECTS, GAPS, st.booleans(), st.lists(NAMES, min_size=1, max_size=3), VALUES)
def test_a_member_that_is_set_is_all_that_changes(
    value: dict[str, Any], gaps: list[str], trailing: bool, way: list[str], new: Any
) -> None:
    text = written(value, cycle(gaps), trailing=trailing)
    assert jsonc.read(text) == value
    place: Any = value
    for name in way[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            with pytest.raises(ValueError, match="is not an object"):
                jsonc.with_members(text, [(tuple(way), new)])
            return
    before, replaced = text.count("note"), json.dumps(place.get(way[-1]))
    place[way[-1]] = new
    after = jsonc.with_members(text, [(tuple(way), new)])
    assert jsonc.read(after) == value
    if replaced == "null":
        assert after.count("note") - json.dumps(new).count("note") == before
    assert jsonc.with_members(after, [(tuple(way), new)]) == after


@pytest.mark.parametrize(
    "text",
    ["{", "{]", '{"a" 1}', '{"a": }', '{"a": 1 "b": 2}', "{'a': 1}", "{a: 1}", "[1 2]", "{} {}", "NaN", '{"a": NaN}',
     '{"a": 1,,}', '{,}', "/* open", '{"a": "\n"}', "[" * 100_000, "/**/" + "[" * 100_000,
     '{"a": 1' + "0" * 5000 + "}"],
)  # fmt: skip
def test_what_is_not_json_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  (each has words of its own)
        jsonc.read(text)
    assert len(str(raised.value)) < 150


def test_what_is_read_is_bounded_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert text_of(path) is None
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ConfigurationError, match="larger than"):
        text_of(path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigurationError, match="not UTF-8 at byte 7"):
        text_of(path)
    with pytest.raises(ConfigurationError, match="directory"):
        text_of(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="it is not a file"):
        text_of(tmp_path / "pipe")


def test_a_file_of_ours_is_no_link_and_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("{}")
    link.symlink_to(path)
    assert (text_of(link), text_of(path, is_own=True)) == ("{}", "{}")
    with pytest.raises(ConfigurationError, match=rf"it is a link; name {path} instead"):
        text_of(link, is_own=True)
    if path.stat().st_uid:
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    else:
        os.chown(path, 4242, -1)
    with pytest.raises(ConfigurationError, match="belongs to somebody else"):
        text_of(path, is_own=True)


def test_a_change_is_whole_keeps_what_was_and_leaves_modes_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    assert change(path, lambda _: "one", "no") == [f"Wrote {path}."]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    link.symlink_to(path)
    assert change(link, lambda there: there + " two", "no") == [f"Wrote {link}.", f"What it was is in {link}{BACKUP}."]
    assert (path.read_text(), path.stat().st_mode & 0o777, link.is_symlink()) == ("one two", 0o644, True)
    assert change(path, lambda _: "three", "no", is_private=True)[0] == f"Wrote {path}."
    assert path.stat().st_mode & 0o777 == 0o600
    assert change(path, lambda there: there, "no") == [f"{path} has it already."]


def test_what_somebody_else_writes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def slow(there: str) -> str:
        path.write_text("theirs")
        return there + " and ours"

    with pytest.raises(ConfigurationError, match="changed by somebody else meanwhile"):
        change(path, slow, "no")
    assert path.read_text() == "theirs"
    assert {each.name for each in tmp_path.iterdir()} == {"file", f"file{BACKUP}"}
