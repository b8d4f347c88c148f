"""The page of embeddings holds the code's own tables. `python -m tests.docs.test_openai_embeddings` writes them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tenuto.runtime.dialects.openai import rerank
from tenuto.runtime.dialects.openai.embeddings import wire
from tenuto.runtime.dialects.refusals import Refusal
from tests.docs.test_openai_chat import marked, table

PAGE = Path(__file__).parents[2] / "docs" / "openai-embeddings.md"
TABLES: dict[str, Mapping[str, str | Refusal]] = {
    "embeddings-served": wire.SERVED,
    "embeddings-ignored": wire.IGNORED,
    "embeddings-refused": wire.REFUSED,
    "rerank-served": rerank.SERVED,
}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_codes_own_table(name: str) -> None:
    found = marked(name).search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(TABLES[name])


def test_every_field_that_is_read_is_told_and_stands_once() -> None:
    assert set(wire.EmbeddingsBody.model_fields) == set(wire.SERVED)
    assert set(rerank.RerankBody.model_fields) == set(rerank.SERVED)
    names = [name for one in (wire.SERVED, wire.IGNORED, wire.REFUSED) for name in one]
    assert len(names) == len(set(names))


if __name__ == "__main__":
    page = PAGE.read_text()
    for name, fields in TABLES.items():
        page = marked(name).sub(lambda _, fields=fields: table(fields), page)  # type: ignore[misc]  # bound at once
    PAGE.write_text(page)
