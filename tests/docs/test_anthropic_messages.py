"""The page of Anthropic's messages holds the code's own tables. `python -m tests.docs.test_anthropic_messages` writes
them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tenuto.runtime.dialects.anthropic.errors import ANTHROPIC
from tenuto.runtime.dialects.anthropic.messages import fields
from tenuto.runtime.dialects.anthropic.messages.wire import MessagesBody
from tenuto.runtime.dialects.refusals import Refusal
from tests.docs.test_openai_chat import marked

PAGE = Path(__file__).parents[2] / "docs" / "anthropic-messages.md"
TABLES: dict[str, Mapping[str, str | Refusal]] = {
    "messages-served": fields.SERVED,
    "messages-ignored": fields.IGNORED,
    "messages-refused": fields.REFUSED,
}


def table(of: Mapping[str, str | Refusal]) -> str:
    rows = [f"| `{name}` | {told if isinstance(told, str) else told.words} |" for name, told in of.items()]
    return "\n".join(["| field | |", "|---|---|", *rows])


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_codes_own_table(name: str) -> None:
    found = marked(name).search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(TABLES[name])


def test_every_field_that_is_read_is_told_and_stands_once() -> None:
    assert set(MessagesBody.model_fields) == set(fields.SERVED)
    names = [name for one in (fields.SERVED, fields.IGNORED, fields.REFUSED) for name in one]
    assert len(names) == len(set(names))


def test_every_status_of_an_error_is_on_the_page() -> None:
    page = PAGE.read_text()
    told = {(entry.status, entry.type) for entry in ANTHROPIC.values()} - {
        (405, "invalid_request_error"),
        (431, "request_too_large"),
    }
    assert [one for one in told if "| {} | `{}` |".format(*one) not in page] == []


if __name__ == "__main__":
    page = PAGE.read_text()
    for name, of in TABLES.items():
        page = marked(name).sub(lambda _, of=of: table(of), page)  # type: ignore[misc]  # bound at once
    PAGE.write_text(page)
