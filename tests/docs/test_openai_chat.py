"""The page of the chat API holds the very tables of the code. `python -m tests.docs.test_openai_chat` writes them."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tenuto.runtime.dialects.openai.chat import fields as chat
from tenuto.runtime.dialects.openai.chat.wire import ChatBody
from tenuto.runtime.dialects.openai.completions import wire as text
from tenuto.runtime.dialects.openai.native_completions import infill
from tenuto.runtime.dialects.openai.native_completions import wire as native
from tenuto.runtime.dialects.refusals import Refusal

PAGE = Path(__file__).parents[2] / "docs" / "openai-chat.md"
TABLES: dict[str, Mapping[str, str | Refusal]] = {
    "chat-served": chat.SERVED,
    "chat-ignored": chat.IGNORED,
    "chat-left-out": chat.LEFT_OUT,
    "chat-refused": chat.REFUSED,
    "text-served": text.SERVED,
    "text-ignored": text.IGNORED,
    "text-refused": text.REFUSED,
    "native-served": native.SERVED,
    "native-ignored": native.IGNORED,
    "native-refused": native.REFUSED,
    "infill-served": infill.SERVED,
}


def table(fields: Mapping[str, str | Refusal]) -> str:
    rows = [f"| `{name}` | {told if isinstance(told, str) else told.words} |" for name, told in fields.items()]
    return "\n".join(["| field | |", "|---|---|", *rows])


def marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_codes_own_table(name: str) -> None:
    found = marked(name).search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(TABLES[name])


def test_every_field_that_is_read_is_told_and_stands_once() -> None:
    assert set(ChatBody.model_fields) == set(chat.SERVED)
    assert set(text.CompletionBody.model_fields) == set(text.SERVED)
    for tables in ((chat.SERVED, chat.IGNORED, chat.LEFT_OUT, chat.REFUSED), (text.SERVED, text.IGNORED, text.REFUSED)):
        names = [name for one in tables for name in one]
        assert len(names) == len(set(names))


if __name__ == "__main__":
    page = PAGE.read_text()
    for name, fields in TABLES.items():
        page = marked(name).sub(lambda _, fields=fields: table(fields), page)  # type: ignore[misc]  # bound at once
    PAGE.write_text(page)
