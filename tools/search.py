"""Which of many tools suit a few words: full-text search over names, descriptions and parameters, by SQLite's FTS5."""

import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

from tenuto.sessions.items import JsonObject, ToolSpec

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MOST_WORDS = 32
_MOST_CHARACTERS = 4_000
"""So much of a query, and of a tool's parameters, is looked at."""
_SAID_ANYHOW = frozenset(
    re.findall(
        r"\w+",
        "a an and are at be by can could do does for from how i in is it me my of on or please tell that the them then"
        " this to use was what when where which who will with would you",
    )
)
"""Words of questions that are about no tool, where there are others."""
_PREFIXED = 3
"""Words of so many letters also find longer ones."""
_TABLE = "CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, tokenize = 'porter unicode61')"
_INSERTED = "INSERT INTO tools(rowid, name, description, parameters) VALUES (?, ?, ?, ?)"
_RANKED = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 8.0, 3.0, 1.0), rowid LIMIT ?"


def search(tools: Sequence[ToolSpec], query: str, most: int) -> list[ToolSpec]:
    """The tools that suit the query best, the best one first. One that the query names comes before all others.

    Any thread; it takes some milliseconds for hundreds of tools.
    """
    query = query[:_MOST_CHARACTERS]
    spoken = frozenset(query.split())
    named = [tool for tool in tools if tool.name in spoken][:most]
    said = dict.fromkeys(word.lower() for word in _words(query))
    words = [word for word in said if word not in _SAID_ANYHOW] or said
    terms = [f'"{word}"*' if len(word) >= _PREFIXED else f'"{word}"' for word in words]
    if not terms:
        return named
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(_TABLE)
        database.executemany(_INSERTED, _rows(tools))
        found = database.execute(_RANKED, (" OR ".join(terms[:_MOST_WORDS]), most)).fetchall()
    ranked = [tools[row] for (row,) in found]
    return [*named, *(tool for tool in ranked if tool not in named)][:most]


def _rows(tools: Iterable[ToolSpec]) -> Iterable[tuple[int, str, str, str]]:
    for row, tool in enumerate(tools):
        parameters = " ".join(_spoken(tool.parameters))[:_MOST_CHARACTERS]
        yield row, " ".join(_words(tool.name)), tool.description[:_MOST_CHARACTERS], " ".join(_words(parameters))


def _spoken(schema: JsonObject) -> Iterable[str]:
    """What a schema says in words of its parameters, not of what lies deeper."""
    properties = schema.get("properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        yield name
        if isinstance(value, dict) and isinstance(description := value.get("description"), str):
            yield description


def _words(text: str) -> list[str]:
    """The words of names and of texts: `createIssue`, `create_issue` and `create-issue` have two."""
    return _WORD.findall(_HUMP.sub(" ", text))
