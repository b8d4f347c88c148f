"""The page of responses has the tables of the code. `python -m tests.docs.test_openai_responses` writes them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tenuto.runtime.dialects.openai.responses import fields
from tenuto.runtime.dialects.openai.responses.wire import ResponsesBody
from tenuto.runtime.dialects.refusals import Refusal
from tests.docs.test_openai_chat import marked, table

PAGE = Path(__file__).parents[2] / "docs" / "openai-responses.md"
TABLES: dict[str, Mapping[str, str | Refusal]] = {
    "responses-served": fields.SERVED,
    "responses-ignored": fields.IGNORED,
    "responses-left-out": fields.LEFT_OUT,
    "responses-refused": fields.REFUSED,
}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_codes_own_table(name: str) -> None:
    found = marked(name).search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(TABLES[name])


def test_every_field_that_is_read_is_told_and_stands_once() -> None:
    names = [name for one in TABLES.values() for name in one]
    assert len(names) == len(set(names))
    assert set(ResponsesBody.model_fields) <= set(names)


if __name__ == "__main__":
    page = PAGE.read_text()
    for name, told in TABLES.items():
        page = marked(name).sub(lambda _, told=told: table(told), page)  # type: ignore[misc]  # bound at once
    PAGE.write_text(page)
