"""Each rule of docs/requirements/ has a source and a test that there is, and each field of each API has a rule."""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tenuto.runtime.dialects.anthropic.messages import fields as messages
from tenuto.runtime.dialects.ollama import fields as ollama
from tenuto.runtime.dialects.openai import rerank, tokens
from tenuto.runtime.dialects.openai.chat import fields as chat
from tenuto.runtime.dialects.openai.completions import wire as text
from tenuto.runtime.dialects.openai.conversations import fields as conversations
from tenuto.runtime.dialects.openai.embeddings import wire as embeddings
from tenuto.runtime.dialects.openai.native_completions import infill
from tenuto.runtime.dialects.openai.native_completions import wire as native
from tenuto.runtime.dialects.openai.responses import fields as responses

TESTS = Path(__file__).parents[1]
FOLDER = TESTS.parent / "docs" / "requirements"
PAGES = sorted(page.stem for page in FOLDER.glob("*.md") if page.stem != "README")
FIELDS: dict[tuple[str, str], Iterable[Mapping[str, object]]] = {
    ("openai-chat", "/v1/chat/completions"): (chat.SERVED, chat.IGNORED, chat.LEFT_OUT, chat.REFUSED),
    ("openai-chat", "/v1/completions"): (text.SERVED, text.IGNORED, text.REFUSED),
    ("openai-chat", "/completion"): (native.SERVED, native.IGNORED, native.REFUSED),
    ("openai-chat", "/infill"): (infill.SERVED,),
    ("openai-responses", "Fields"): (responses.SERVED, responses.IGNORED, responses.LEFT_OUT, responses.REFUSED),
    ("openai-conversations", "Fields"): (conversations.SERVED,),
    ("openai-conversations", "Items"): (conversations.KEPT,),
    ("openai-embeddings", "/v1/embeddings"): (embeddings.SERVED, embeddings.IGNORED, embeddings.REFUSED),
    ("openai-embeddings", "/v1/rerank"): (rerank.SERVED,),
    ("anthropic-messages", "Fields"): (messages.SERVED, messages.IGNORED, messages.REFUSED),
    ("ollama", "/api/chat"): (ollama.CHAT_SERVED, ollama.CHAT_IGNORED, ollama.CHAT_REFUSED),
    ("ollama", "/api/generate"): (ollama.GENERATE_SERVED, ollama.GENERATE_IGNORED, ollama.GENERATE_REFUSED),
    ("ollama", "/api/embed"): (ollama.EMBED_SERVED, ollama.EMBED_IGNORED),
    ("ollama", "Options"): (ollama.OPTIONS_SERVED, ollama.OPTIONS_LEFT_OUT, ollama.OPTIONS_IGNORED),
}
CELLS = 5


@dataclass(frozen=True)
class Row:
    """A rule, as its page has it."""

    section: str
    fields: tuple[str, ...]
    rule: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    divergence: str


@cache
def rows(page: str) -> list[Row]:
    """The rules of a page."""
    found: list[Row] = []
    section = ""
    for line in (FOLDER / f"{page}.md").read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| field |"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            assert len(cells) == CELLS, line
            fields, rule, sources, tests, divergence = cells
            quoted = (tuple(re.findall(r"`([^`]+)`", cell)) for cell in (fields, tests))
            mentioned = tuple(re.findall(r"\[([\w-]+)\]", sources))
            found.append(Row(section, next(quoted), rule, mentioned, next(quoted), divergence))
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    """The tests of a module."""
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def is_there(test: str) -> bool:
    """Whether there is a test, or a recorded pair."""
    path, _, name = test.partition("::")
    place = TESTS / path if "/" in path and not path.startswith("wire/") else TESTS / "dialects" / path
    return place.exists() and (name in functions(place) if name else place.suffix == ".json")


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_has_a_test_that_there_is(page: str) -> None:
    assert len(rows(page)) > 15
    assert [row.rule for row in rows(page) if not row.tests] == []
    assert [test for row in rows(page) for test in row.tests if not is_there(test)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_has_a_source_that_leads_somewhere(page: str) -> None:
    links = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", (FOLDER / f"{page}.md").read_text(), re.MULTILINE))
    assert [row.rule for row in rows(page) if not row.sources or not set(row.sources) <= set(links)] == []
    assert set(links) == {source for row in rows(page) for source in row.sources}
    strange = [link for link in links.values() if not link.startswith("https://") and not (FOLDER / link).exists()]
    assert strange == []


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_is_a_sentence_that_stands_once(page: str) -> None:
    told = [(row.section, row.fields, row.rule) for row in rows(page)]
    assert len(told) == len(set(told))
    assert [row.rule for row in rows(page) if not row.rule.endswith(".")] == []
    assert [row.divergence for row in rows(page) if row.divergence != "none" and row.divergence[-1:] != "."] == []


@pytest.mark.parametrize(("page", "section"), FIELDS)
def test_every_field_of_an_api_has_a_rule_and_every_rule_is_about_such_fields(page: str, section: str) -> None:
    known = {name for table in FIELDS[page, section] for name in table}
    assert {name for row in rows(page) if row.section == section for name in row.fields} == known


def test_every_field_of_what_llama_server_adds_has_a_rule() -> None:
    (section,) = {row.section for row in rows("openai-chat")} - {one for page, one in FIELDS if page == "openai-chat"}
    told = {name for row in rows("openai-chat") if row.section == section for name in row.fields}
    read = {*tokens.TokenizeBody.model_fields, *tokens.DetokenizeBody.model_fields}
    assert told == read - {"model"}


def test_every_page_is_in_the_index() -> None:
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\)", (FOLDER / "README.md").read_text())) == PAGES
