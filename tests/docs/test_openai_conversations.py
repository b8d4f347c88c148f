"""The page of conversations has the code's tables. `python -m tests.docs.test_openai_conversations` writes them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tenuto.runtime.dialects.openai.conversations import fields
from tenuto.runtime.dialects.openai.conversations.wire import CreateBody, ItemsBody, UpdateBody
from tests.docs.test_openai_chat import marked, table

PAGE = Path(__file__).parents[2] / "docs" / "openai-conversations.md"
TABLES: dict[str, Mapping[str, str]] = {"conversations-served": fields.SERVED, "conversations-items": fields.KEPT}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_codes_own_table(name: str) -> None:
    found = marked(name).search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(TABLES[name])


def test_every_field_that_is_read_is_told() -> None:
    assert {name for body in (CreateBody, UpdateBody, ItemsBody) for name in body.model_fields} == set(fields.SERVED)


if __name__ == "__main__":
    page = PAGE.read_text()
    for name, told in TABLES.items():
        page = marked(name).sub(lambda _, told=told: table(told), page)  # type: ignore[misc]  # bound at once
    PAGE.write_text(page)
