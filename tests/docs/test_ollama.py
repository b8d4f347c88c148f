"""The page of Ollama's API holds the code's own tables. `python -m tests.docs.test_ollama` writes them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tenuto.runtime.dialects.ollama import fields
from tenuto.runtime.dialects.ollama.errors import OLLAMA
from tenuto.runtime.dialects.ollama.wire import AskBody, EmbedBody, GenerateBody, OllamaChatBody, OllamaOptions
from tenuto.runtime.dialects.refusals import Refusal
from tests.docs.test_openai_chat import marked

Table = Mapping[str, str] | Mapping[str, Refusal]

PAGE = Path(__file__).parents[2] / "docs" / "ollama.md"
TABLES: dict[str, Table] = {
    "chat-served": fields.CHAT_SERVED,
    "chat-ignored": fields.CHAT_IGNORED,
    "generate-served": fields.GENERATE_SERVED,
    "generate-refused": fields.GENERATE_REFUSED,
    "embed-served": fields.EMBED_SERVED,
    "embed-ignored": fields.EMBED_IGNORED,
    "options-served": fields.OPTIONS_SERVED,
    "options-left-out": fields.OPTIONS_LEFT_OUT,
    "options-ignored": fields.OPTIONS_IGNORED,
}


def table(of: Table) -> str:
    rows = [f"| `{name}` | {told if isinstance(told, str) else told.words} |" for name, told in of.items()]
    return "\n".join(["| field | |", "|---|---|", *rows])


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_codes_own_table(name: str) -> None:
    found = marked(name).search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(TABLES[name])


@pytest.mark.parametrize(
    ("read", "served", "others"),
    [
        (OllamaChatBody, fields.CHAT_SERVED, [fields.CHAT_IGNORED, fields.CHAT_REFUSED]),
        (GenerateBody, fields.GENERATE_SERVED, [fields.GENERATE_IGNORED, fields.GENERATE_REFUSED]),
        (EmbedBody, fields.EMBED_SERVED, [fields.EMBED_IGNORED]),
        (
            OllamaOptions,
            {**fields.OPTIONS_SERVED, **dict.fromkeys(fields.OPTIONS_LEFT_OUT, "")},
            [fields.OPTIONS_IGNORED],
        ),
    ],
)
def test_every_field_that_is_read_is_told_and_stands_once(
    read: type[AskBody | EmbedBody | OllamaOptions], served: Table, others: list[Table]
) -> None:
    assert set(read.model_fields) == set(served)
    names = [name for one in (served, *others) for name in one]
    assert len(names) == len(set(names))


def test_every_status_of_an_error_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert [entry.status for entry in OLLAMA.values() if f"| {entry.status} |" not in page] == []


if __name__ == "__main__":
    page = PAGE.read_text()
    for name, of in TABLES.items():
        page = marked(name).sub(lambda _, of=of: table(of), page)  # type: ignore[misc]  # bound at once
    PAGE.write_text(page)
