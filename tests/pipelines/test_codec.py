"""What a codec says of a model, and what its ledgers depend on."""

from collections.abc import Mapping
from typing import Any

import pytest

from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.sessions.items import ToolSpec, UserItem

TOOL = ToolSpec("f", "does", {"type": "object", "properties": {"a": {}, "b": {}}})


class WithBos:
    """The embedded vocabulary, with a token that is wanted before everything."""

    def __init__(self, tokenizer: Tokenizer, bos: int) -> None:
        self._tokenizer, self.bos, self.text_bos = tokenizer, bos, bos
        self.vocabulary, self.stop_tokens = tokenizer.vocabulary, tokenizer.stop_tokens
        self.control_tokens, self.user_defined = tokenizer.control_tokens, tokenizer.user_defined
        self.special_texts: Mapping[str, str] = {"bos_token": tokenizer.piece(bos).decode()}

    def template_tokens(self, text: str) -> list[int]:
        return self._tokenizer.template_tokens(text)

    def plain_tokens(self, text: str) -> list[int]:
        return self._tokenizer.plain_tokens(text)

    def piece(self, token: int) -> bytes:
        return self._tokenizer.piece(token)

    def grammar_tokenizer(self) -> Any:
        return self._tokenizer.grammar_tokenizer()


@pytest.mark.parametrize("written", ["", "{{ bos_token }}"])
def test_the_first_token_is_written_once_and_only_at_the_beginning(embedded_tokenizer: Tokenizer, written: str) -> None:
    pad = embedded_tokenizer.template_tokens("<|pad|>")[0]
    template = f"{written}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
    codec = TemplateCodec("m", WithBos(embedded_tokenizer, pad), template)
    first = codec.suffix([], [UserItem("hi")], [], ended=False).items[0]
    assert first == (pad, *codec.tokenize("hi"))
    assert codec.suffix([UserItem("hi")], [UserItem("ho")], [], ended=False).items == (tuple(codec.tokenize("ho")),)
    assert codec.suffix([], [], [], ended=False).opening == (pad,)


def test_the_facts_of_the_embedded_model(embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer) -> None:
    info = embedded_codec.info
    reserved = {embedded_tokenizer.piece(token).decode() for token in info.control_tokens}
    assert (info.model, info.vocabulary) == ("embedded", embedded_tokenizer.vocabulary)
    assert {embedded_tokenizer.piece(token) for token in info.stop_tokens} == {b"<|im_end|>"}
    assert {"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>"} <= reserved
    assert '", "' not in reserved


def test_the_fingerprint_names_vocabulary_template_and_tools(
    embedded_tokenizer: Tokenizer, embedded_template: str
) -> None:
    def fingerprint(*tools: ToolSpec, template: str = embedded_template) -> str:
        return TemplateCodec("m", embedded_tokenizer, template).fingerprint(tools)

    same = ToolSpec("f", "does", {"type": "object", "properties": {"a": {}, "b": {}}}, strict=False)
    turned = ToolSpec("f", "does", {"type": "object", "properties": {"b": {}, "a": {}}})
    assert len(fingerprint()) == 32
    assert int(fingerprint(), 16)
    assert fingerprint(TOOL) == fingerprint(same)
    different = [fingerprint(), fingerprint(TOOL), fingerprint(TOOL, TOOL), fingerprint(turned)]
    different.append(fingerprint(template=embedded_template + " "))
    different.append(TemplateCodec("m", WithOtherPiece(embedded_tokenizer), embedded_template).fingerprint([]))
    assert len(set(different)) == len(different)


class WithOtherPiece(WithBos):
    """The embedded vocabulary with another last entry."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, 0)

    def piece(self, token: int) -> bytes:
        return b"other" if token == self.vocabulary - 1 else super().piece(token)
