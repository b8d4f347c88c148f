"""After so many tokens of reasoning the closing marker is forced; the turn goes on as if the model had written it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.base import Constraint, ReasoningBound, ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.reasoning_bound import BoundedReasoning
from tenuto.pipelines.scripted import SWITCHED_TEMPLATE, TEMPLATE, ScriptedTokenizer
from tenuto.pipelines.scripted.tokenizer import END, PIECES, SPECIALS
from tenuto.pipelines.vocabulary import vocabulary_of
from tenuto.sessions.items import ToolSpec
from tests.pipelines.formats.vocabularies import ByteTokenizer
from tests.pipelines.masks import lets

THINK, THOUGHT = SPECIALS["<think>"], SPECIALS["</think>"]
VOCABULARY = vocabulary_of(PIECES, frozenset({END}), frozenset(), {"<think>": THINK, "</think>": THOUGHT})
UNMARKED = vocabulary_of(PIECES, frozenset({END}), frozenset(), {})
TOOL = ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
SAID = b"  \n"


class Free:
    """A constraint that allows all."""

    def mask(self) -> None:
        return None

    def forced(self) -> tuple[int, ...]:
        return ()

    def accept(self, token: int) -> None:
        del token


def bounded(tokens: int, *, begun: bool = False, as_text: bool = False) -> BoundedReasoning:
    closing = tuple(b"</think>") if as_text else (THOUGHT,)
    bound = ReasoningBound(tokens, "<think>", "</think>", closing, begun)
    return BoundedReasoning(bound, Free(), UNMARKED if as_text else VOCABULARY)


def spoken(constraint: Constraint, wanted: list[int]) -> list[int]:
    """What comes of a model that wants to say these tokens, one after the other, and takes what it must."""
    said: list[int] = []
    for token in wanted:
        while not lets(mask := constraint.mask(), token):
            forced = next(one for one in range(len(PIECES)) if lets(mask, one))
            constraint.accept(forced)
            said.append(forced)
        constraint.accept(token)
        said.append(token)
    return said


def text(tokens: list[int]) -> str:
    return b"".join(PIECES[token] for token in tokens).decode("utf-8", "replace")


@pytest.mark.parametrize(("budget", "said"), [(0, ""), (1, "l"), (4, "long")])
def test_reasoning_is_closed_after_its_tokens(budget: int, said: str) -> None:
    wanted = [THINK, *b"long thoughts", THOUGHT, *b"text", END]
    assert text(spoken(bounded(budget), wanted)).startswith(f"<think>{said}</think>")


def test_reasoning_that_is_short_is_left_alone() -> None:
    for wanted in ([THINK, *b"short", THOUGHT, *b"a long text after it", END], [*b"no reasoning at all", END]):
        assert spoken(bounded(8), wanted) == wanted


def test_a_turn_may_begin_inside_of_it() -> None:
    assert text(spoken(bounded(3, begun=True), [*b"abcdef"])) == "abc</think>def"
    assert text(spoken(bounded(0, begun=True), [*b"abc"])) == "</think>abc"


def test_markers_that_are_texts_are_found_and_written_as_texts() -> None:
    said = spoken(bounded(2, as_text=True), [*SAID, *b"<think>abcdef"])
    assert text(said) == "  \n<think>ab</think>cdef"
    quoting = [*b"the tag <think> is what this is about", END]
    assert spoken(bounded(2, as_text=True), quoting) == quoting


def test_several_reasonings_of_a_turn_share_the_tokens() -> None:
    wanted = [THINK, *b"abc", THOUGHT, *b"text", THINK, *b"defghi"]
    assert text(spoken(bounded(5), wanted)) == "<think>abc</think>text<think>de</think>fghi"


def test_a_character_is_written_to_its_end() -> None:
    said = spoken(bounded(1, begun=True), [*"é".encode(), *b"x"])
    assert text(said) == "é</think>x"


@given(
    cut=st.integers(0, 24),
    budget=st.integers(0, 8),
    as_text=st.booleans(),
    wanted=st.lists(st.sampled_from([*b"ab <", THINK, THOUGHT, *"é".encode()]), max_size=16),
)
def test_a_round_that_goes_on_elsewhere_is_held_to_the_same(
    cut: int, budget: int, as_text: bool, wanted: list[int]
) -> None:
    """What holds a round is a function of its tokens: after a crash they are read again, without masks."""
    wanted = [*b"<think>", *wanted] if as_text else [THINK, *wanted]
    said = spoken(bounded(budget, as_text=as_text), wanted)
    again = bounded(budget, as_text=as_text)
    for token in said[:cut]:
        again.accept(token)
    first = bounded(budget, as_text=as_text)
    for token in said[:cut]:
        first.mask()
        first.accept(token)
    one, other = first.mask(), again.mask()
    assert (one is None) is (other is None)
    assert one is None or other is None or (one == other).all()


def test_a_forced_call_comes_after_reasoning_that_was_closed() -> None:
    codec = TemplateCodec("m", ScriptedTokenizer(), TEMPLATE)
    source = codec.grammar([TOOL], ToolChoice.REQUIRED, parallel=False)
    held = codec.bounded(source, 3, calls=True)
    assert held is not None
    call = [SPECIALS["<tool_call>"], *b'\n{"name": "f", "arguments": {"a": "b"}}\n', SPECIALS["</tool_call>"], END]
    said = spoken(codec.constraint(held), [THINK, *b"abc", *call])
    assert text(said).startswith("<think>abc</think>")
    assert text(said).endswith(text(call))


def test_a_model_that_marks_no_reasoning_is_held_as_before() -> None:
    plain = TemplateCodec("m", ScriptedTokenizer(), SWITCHED_TEMPLATE)
    assert plain.bounded(None, 5, calls=False) is not None
    bare = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert TemplateCodec("m", Unmarked(), bare).bounded(None, 5, calls=False) is None


class Unmarked(ScriptedTokenizer):
    """The vocabulary with other names for the markers of reasoning."""

    @property
    def user_defined(self) -> dict[str, int]:
        return {}

    def piece(self, token: int) -> bytes:
        return PIECES[token].replace(b"think", b"other")


CHANNELS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>")
HARMONY = ByteTokenizer((*CHANNELS, "<|return|>", "<|call|>"), stops=("<|return|>", "<|call|>"))
THINKS, THINKS_AGAIN = "<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>analysis<|message|>"


def harmony() -> TemplateCodec:
    template = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
    opening = "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    return TemplateCodec("m", HARMONY, template + opening, "gpt-oss")


def spoken_in_channels(wanted: str, tokens: int, *, calls: bool, choice: ToolChoice = ToolChoice.NONE) -> str:
    """What comes of a model that wants to say this; a token that it may not say is left out, or another is forced."""
    codec = harmony()
    source = codec.grammar([TOOL] if calls else [], choice, parallel=False)
    held = codec.bounded(source, tokens, calls=calls)
    assert held is not None
    constraint, said = codec.constraint(held), list[int]()
    for token in HARMONY.template_tokens(wanted):
        while len(allowed := allowed_by(constraint)) == 1 and token not in allowed:
            constraint.accept(allowed[0])
            said += allowed
        if token in allowed:
            constraint.accept(token)
            said.append(token)
    return codec.detokenize(said)


def allowed_by(constraint: Constraint) -> list[int]:
    mask = constraint.mask()
    return [token for token in range(HARMONY.vocabulary) if lets(mask, token)]


def test_a_model_of_channels_is_led_from_its_reasoning_to_its_answer() -> None:
    said = spoken_in_channels(f"{THINKS}long thoughts", 4, calls=False)
    assert said == f"{THINKS}long<|end|><|start|>assistant<|channel|>final<|message|> thoughts"


def test_a_model_of_channels_may_call_after_its_reasoning() -> None:
    call = 'commentary to=functions.f <|constrain|>json<|message|>{"a": "b"}<|call|>'
    said = spoken_in_channels(f"{THINKS}long{call}", 4, calls=True, choice=ToolChoice.AUTO)
    assert said == f"{THINKS}long<|end|><|start|>assistant<|channel|>{call}"


def test_nothing_that_begins_another_reasoning_follows_one_that_was_closed() -> None:
    codec = harmony()
    held = codec.bounded(None, 0, calls=True)
    assert held is not None
    constraint = codec.constraint(held)
    for token in HARMONY.template_tokens(f"{THINKS}<|end|><|start|>assistant<|channel|>"):
        constraint.accept(token)
    assert set(range(HARMONY.vocabulary)) - set(allowed_by(constraint)) == {ord("a")}


def test_a_model_of_channels_is_led_to_a_call_that_is_forced() -> None:
    call = 'commentary to=functions.f <|constrain|>json<|message|>{"a": "b"}<|call|>'
    said = spoken_in_channels(f"{THINKS}long thoughts{call}", 4, calls=True, choice=ToolChoice.REQUIRED)
    assert said.startswith(f"{THINKS}long<|end|><|start|>assistant<|channel|>commentary to=functions.f")


def test_reasonings_in_several_messages_of_a_turn_share_the_tokens() -> None:
    said = spoken_in_channels(f"{THINKS}abc<|end|>{THINKS_AGAIN}dexy", 5, calls=False)
    assert said == f"{THINKS}abc<|end|>{THINKS_AGAIN}de<|end|><|start|>assistant<|channel|>final<|message|>xy"


def test_an_answer_may_quote_what_opens_the_reasoning() -> None:
    quoting = f"<|channel|>final<|message|>it writes {THINKS!r}"
    codec = harmony()
    watch = codec.reasoning_watch()
    assert watch is not None
    for token in [*HARMONY.template_tokens("<|channel|>final<|message|>"), *codec.tokenize(quoting)]:
        watch.push(token)
    assert (watch.inside, watch.tokens) == (False, 0)


@pytest.mark.parametrize(("said", "tokens"), [(f"{THINKS}abc<|end|>{THINKS_AGAIN}de", 5), ("no reasoning", 0)])
def test_the_tokens_of_reasoning_are_counted(said: str, tokens: int) -> None:
    watch = harmony().reasoning_watch()
    assert watch is not None
    for token in HARMONY.template_tokens(said):
        watch.push(token)
    assert watch.tokens == tokens
