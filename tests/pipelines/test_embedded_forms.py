"""Both forms of the embedded model are one model: the same tokens, templates and grammars, whatever is said."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("llama_cpp", reason="needs tenuto[llama]")
pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")

from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.sessions.items import Item, ToolSpec
from tests.pipelines.conftest import gguf_form, mlx_form
from tests.pipelines.test_chat_template import TALK, TOOLS, conversations
from tests.pipelines.test_constraints import CALCULATOR, NOTES, allowed, walk
from tests.pipelines.test_content import seeded_texts


@dataclass(frozen=True)
class Form:
    tokenizer: Tokenizer
    template: str
    codec: TemplateCodec


@pytest.fixture(scope="module")
def forms() -> tuple[Form, Form]:
    found = [Form(*form, TemplateCodec("embedded", *form)) for form in (gguf_form(), mlx_form())]
    return found[0], found[1]


def test_the_vocabularies_are_the_same(forms: tuple[Form, Form]) -> None:
    gguf, mlx = (form.tokenizer for form in forms)
    assert [gguf.piece(token) for token in range(gguf.vocabulary)] == [mlx.piece(t) for t in range(mlx.vocabulary)]
    for name in ("stop_tokens", "control_tokens", "user_defined", "bos", "text_bos", "special_texts"):
        assert getattr(gguf, name) == getattr(mlx, name), name


def test_the_templates_and_the_facts_are_the_same(forms: tuple[Form, Form]) -> None:
    gguf, mlx = forms
    assert gguf.template == mlx.template
    assert gguf.codec.info == mlx.codec.info
    assert gguf.codec.fingerprint(TOOLS) == mlx.codec.fingerprint(TOOLS)


@given(text=st.text() | seeded_texts)
def test_every_text_becomes_the_same_tokens(forms: tuple[Form, Form], text: str) -> None:
    gguf, mlx = forms
    assert gguf.codec.tokenize(text) == mlx.codec.tokenize(text)
    assert gguf.tokenizer.template_tokens(text) == mlx.tokenizer.template_tokens(text)
    assert gguf.tokenizer.plain_tokens(text) == mlx.tokenizer.plain_tokens(text)


@given(items=conversations(), tools=st.sampled_from([[], TOOLS]), ended=st.booleans())
def test_every_conversation_becomes_the_same_tokens(
    forms: tuple[Form, Form], items: list[Item], tools: list[ToolSpec], ended: bool
) -> None:
    gguf, mlx = (form.codec for form in forms)
    assert gguf.suffix([], items, tools, ended=False) == mlx.suffix([], items, tools, ended=False)
    for cut in range(1, len(items)):
        before, new = items[:cut], items[cut:]
        assert gguf.suffix(before, new, tools, ended=ended) == mlx.suffix(before, new, tools, ended=ended)


def test_a_conversation_with_tools_is_the_same_for_both(forms: tuple[Form, Form]) -> None:
    gguf, mlx = (form.codec for form in forms)
    rendered = gguf.suffix([], TALK, TOOLS, ended=False)
    assert rendered == mlx.suffix([], TALK, TOOLS, ended=False)
    assert sum(map(len, rendered.items)) > 100


@pytest.mark.parametrize("choice", [ToolChoice.REQUIRED, ToolChoice.AUTO])
def test_grammars_allow_the_same_tokens_at_every_step(forms: tuple[Form, Form], choice: ToolChoice) -> None:
    gguf, mlx = (form.codec for form in forms)
    tools = [CALCULATOR, NOTES]
    source, forced = (gguf.grammar(tools, each, parallel=True) for each in (choice, ToolChoice.REQUIRED))
    assert source is not None
    assert forced is not None
    assert source == mlx.grammar(tools, choice, parallel=True)
    one, other = gguf.constraint(source), mlx.constraint(source)
    for token in walk(gguf, gguf.constraint(forced), 7):
        masks = one.mask(), other.mask()
        assert (masks[0] is None) == (masks[1] is None)
        if masks[0] is not None:
            assert allowed(masks[0], gguf.info.vocabulary) == allowed(masks[1], gguf.info.vocabulary)
        one.accept(token)
        other.accept(token)
