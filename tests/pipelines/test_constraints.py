"""Calls are held to their tools' schemas: any walk under the mask is a valid turn."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tenuto.errors import GenerationFailed, InvalidRequest
from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import Constraint, GrammarSource, ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.pipelines.turns import CallFinished, TurnEvent
from tenuto.sessions.items import ToolSpec
from tests.pipelines.masks import lets


def schema(properties: dict[str, Any], required: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


TEXT = {"type": "string"}
CALCULATOR = ToolSpec("calculator__evaluate", "", schema({"expression": TEXT}, ["expression"]))
NOTES = ToolSpec("notes__put", "", schema({"key": TEXT, "text": TEXT}, ["key", "text"]))
EMPTY = ToolSpec("notes__list", "", schema({}))
SCHEMAS = {
    "string": schema({"expression": TEXT}, ["expression"]),
    "none": schema({}),
    "optional": schema({"a": TEXT, "b": {"type": "boolean"}, "c": {"type": "null"}}, ["b"]),
    "enum": schema({"unit": {"enum": ["celsius", 'q"uote', "\u00e9t\u00e9", 7]}, "k": {"const": "x y"}}, ["unit", "k"]),
    "numbers": schema({"n": {"type": "integer", "minimum": -3, "maximum": 40}, "x": {"type": "number"}}, ["n", "x"]),
    "nested": schema({"at": schema({"lines": {"type": "array", "items": TEXT, "maxItems": 3}}, ["lines"])}, ["at"]),
    "references": schema(
        {"point": {"$ref": "#/$defs/point"}}, ["point"],
        **{"$defs": {"point": schema({"x": {"type": "integer"}}, ["x"], additionalProperties=False)}},
    ),
    "either": schema({"v": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 4}]}}, ["v"]),
    "one of": schema({"v": {"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 2}]}}, ["v"]),
    "pattern": schema({"id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}}, ["id"]),
    "format": schema({"day": {"type": "string", "format": "date"}}, ["day"]),
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
}  # fmt: skip


def allowed(mask: Bitmask | None, vocabulary: int) -> list[int]:
    assert mask is not None
    return [token for token in range(vocabulary) if lets(mask, token)]


def walk(codec: TemplateCodec, constraint: Constraint, seed: int) -> list[int]:
    """Sample from the mask until the turn ends; every second step prefers tokens that close something."""
    chooser = random.Random(seed)
    tokens: list[int] = []
    while not (tokens and tokens[-1] in codec.info.stop_tokens):
        assert len(tokens) < 3000, "the walk does not end"
        choices = allowed(constraint.mask(), codec.info.vocabulary)
        closing = [t for t in choices if codec.detokenize([t]).strip()[:1] in ("", '"', "}", "]", "<")]
        tokens.append(chooser.choice(closing if closing and chooser.random() < 0.5 else choices))
        constraint.accept(tokens[-1])
    return tokens


def force(constraint: Constraint, tokens: Sequence[int], vocabulary: int) -> None:
    """Accept tokens, each of which must be allowed."""
    for place, token in enumerate(tokens):
        mask = constraint.mask()
        assert mask is None or token in allowed(mask, vocabulary), f"token {token} at {place} is masked"
        constraint.accept(token)


def events_of(codec: TemplateCodec, tokens: Sequence[int]) -> list[TurnEvent]:
    parser = codec.parser(calls=True)
    return [event for token in tokens for event in parser.push(token)] + parser.finish()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_forced_turn_is_valid_calls_whatever_is_sampled(embedded_codec: TemplateCodec, name: str, seed: int) -> None:
    tools = [ToolSpec("tried", "", SCHEMAS[name]), ToolSpec('odd "name" \u00e9', "", SCHEMAS["none"])]
    source = embedded_codec.grammar(tools, ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    assert source.unenforced == ()
    events = events_of(embedded_codec, walk(embedded_codec, embedded_codec.constraint(source), seed))
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert finished
    assert {type(event).__name__ for event in events} == {"CallStarted", "CallArguments", "CallFinished"}
    for call in finished:
        parameters = {tool.name: tool.parameters for tool in tools}[call.name]
        jsonschema.validate(json.loads(call.arguments), parameters)


def call_text(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (CALCULATOR, '{"expression": "(2 + 3) * 4"}'),
        (NOTES, '{"key": "rex", "text": "a dog, \\"big\\""}'),
        (EMPTY, "{}"),
    ],
)
def test_the_model_s_own_spelling_with_its_macros_is_allowed(
    embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer, tool: ToolSpec, arguments: str
) -> None:
    source = embedded_codec.grammar([CALCULATOR, NOTES, EMPTY], ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    call = call_text(tool.name, arguments)
    tokens = embedded_tokenizer.template_tokens(f"{call}\n{call}<|im_end|>")
    macros = set(embedded_tokenizer.user_defined.values()) - embedded_codec.info.control_tokens
    assert macros.intersection(tokens)
    force(embedded_codec.constraint(source), tokens, embedded_codec.info.vocabulary)


def test_without_parallel_calls_one_call_ends_the_turn(
    embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer
) -> None:
    call = embedded_tokenizer.template_tokens(call_text("notes__list", "{}"))
    for choice in (ToolChoice.REQUIRED, ToolChoice.AUTO):
        source = embedded_codec.grammar([EMPTY], choice, parallel=False)
        assert source is not None
        constraint = embedded_codec.constraint(source)
        force(constraint, call, embedded_codec.info.vocabulary)
        assert frozenset(allowed(constraint.mask(), embedded_codec.info.vocabulary)) == embedded_codec.info.stop_tokens
        constraint.accept(next(iter(embedded_codec.info.stop_tokens)))
        assert frozenset(allowed(constraint.mask(), embedded_codec.info.vocabulary)) == embedded_codec.info.stop_tokens


def test_a_free_turn_is_masked_only_inside_of_a_call(
    embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer
) -> None:
    source = embedded_codec.grammar([CALCULATOR, EMPTY], ToolChoice.AUTO, parallel=True)
    assert source is not None
    constraint = embedded_codec.constraint(source)
    opener, *rest = embedded_tokenizer.template_tokens(call_text("notes__list", "{}"))
    for _ in range(2):
        for token in embedded_codec.tokenize("I look it up.\n"):
            assert constraint.mask() is None
            constraint.accept(token)
        assert constraint.mask() is None
        constraint.accept(opener)
        force(constraint, rest, embedded_codec.info.vocabulary)
    assert constraint.mask() is None


def test_tool_choice_none_bans_the_opener_alone(embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer) -> None:
    source = embedded_codec.grammar([EMPTY], ToolChoice.NONE, parallel=True)
    opener = embedded_tokenizer.user_defined["<tool_call>"]
    assert source == GrammarSource(banned=frozenset({opener}))
    choices = allowed(embedded_codec.constraint(source).mask(), embedded_codec.info.vocabulary)
    assert set(range(embedded_codec.info.vocabulary)) - set(choices) == {opener}


def test_banned_tokens_are_banned_inside_of_a_grammar_too(embedded_codec: TemplateCodec) -> None:
    source = GrammarSource(lark='start: "a" | "b"', banned=frozenset(embedded_codec.tokenize("a")))
    choices = allowed(embedded_codec.constraint(source).mask(), embedded_codec.info.vocabulary)
    assert embedded_codec.detokenize(choices) == "b"


def test_without_tools_nothing_is_held(embedded_codec: TemplateCodec) -> None:
    for choice in (ToolChoice.AUTO, ToolChoice.NONE):
        assert embedded_codec.grammar([], choice, parallel=True) is None
    with pytest.raises(InvalidRequest):
        embedded_codec.grammar([], ToolChoice.REQUIRED, parallel=True)


def test_a_model_without_a_call_format_cannot_be_made_to_call(embedded_tokenizer: Tokenizer) -> None:
    codec = TemplateCodec("m", embedded_tokenizer, "{% for m in messages %}{{ m.content }}{% endfor %}", "plain")
    assert codec.grammar([EMPTY], ToolChoice.AUTO, parallel=True) is None
    assert codec.unenforced([EMPTY], parallel=True) == ()
    with pytest.raises(InvalidRequest, match="no way to call"):
        codec.grammar([EMPTY], ToolChoice.REQUIRED, parallel=True)


EXACT, MORE = '{"expression": "1"}', '{"expression": "1", "units": "none"}'
WRONG, NOTHING = '{"expression": [1]}', "{}"


@pytest.mark.parametrize(
    ("strict", "more", "taken"),
    [
        (None, {}, {EXACT, MORE}),
        (None, {"additionalProperties": False}, {EXACT}),
        (None, {"additionalProperties": True}, {EXACT, MORE}),
        (True, {}, {EXACT}),
        (False, {}, {EXACT, MORE, WRONG, NOTHING}),
    ],
)
def test_a_schema_is_held_as_it_is_written_and_closed_only_where_strict(
    embedded_codec: TemplateCodec,
    embedded_tokenizer: Tokenizer,
    strict: bool | None,
    more: dict[str, Any],
    taken: set[str],
) -> None:
    """Held shut, a model that writes one more argument is steered into another one's name."""
    tool = ToolSpec("f", "", schema({"expression": TEXT}, ["expression"], **more), strict)
    source = embedded_codec.grammar([tool], ToolChoice.REQUIRED, parallel=True)
    assert source is not None

    def takes(arguments: str) -> bool:
        constraint = embedded_codec.constraint(source)
        for token in embedded_tokenizer.template_tokens(call_text("f", arguments)):
            if token not in allowed(constraint.mask(), embedded_codec.info.vocabulary):
                return False
            constraint.accept(token)
        return True

    assert {arguments for arguments in (EXACT, MORE, WRONG, NOTHING) if takes(arguments)} == taken


def test_tools_that_differ_in_strict_alone_have_grammars_of_their_own(embedded_codec: TemplateCodec) -> None:
    ways = [replace(CALCULATOR, strict=strict) for strict in (None, True, False)]
    sources = [embedded_codec.grammar([tool], ToolChoice.AUTO, parallel=True) for tool in ways]
    assert len({source.lark for source in sources if source is not None}) == 3


LOOSE_TURN = call_text("loose", '{"anything": ["goes", 1]}') + "<|im_end|>"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (ToolSpec("loose", "", schema({"a": {"type": "integer"}}, ["a"]), strict=False), []),
        (ToolSpec("loose", "", schema({"a": {"type": "string", "pattern": "(?=x)y"}})), ["loose"]),
        (ToolSpec("loose", "", schema({"a": {"$ref": "http://example.com/x"}})), ["loose"]),
        (ToolSpec("loose", "", {"type": "object", "properties": 7}), ["loose"]),
        (ToolSpec("loose", "", schema({"a": {"not": {"type": "string"}}})), ["loose"]),
        (ToolSpec("loose", "", schema({"\ud800": TEXT})), ["loose"]),
    ],
)
def test_a_tool_that_cannot_be_held_may_be_called_with_any_object(
    embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer, tool: ToolSpec, said: list[str]
) -> None:
    tools = [tool, CALCULATOR]
    source = embedded_codec.grammar(tools, ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    assert [name for name in said if any(name in line for line in source.unenforced)] == said
    assert len(source.unenforced) == len(said)
    tokens = embedded_tokenizer.template_tokens(LOOSE_TURN)
    force(embedded_codec.constraint(source), tokens, embedded_codec.info.vocabulary)


def test_a_token_that_the_grammar_refuses_fails_this_sequence_alone(embedded_codec: TemplateCodec) -> None:
    source = embedded_codec.grammar([CALCULATOR], ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    broken, sound = embedded_codec.constraint(source), embedded_codec.constraint(source)
    with pytest.raises(GenerationFailed):
        broken.accept(embedded_codec.tokenize("x")[0])
    with pytest.raises(GenerationFailed):
        broken.mask()
    assert events_of(embedded_codec, walk(embedded_codec, sound, 1))


def test_a_source_that_is_no_grammar_is_refused(embedded_codec: TemplateCodec) -> None:
    with pytest.raises(GenerationFailed, match="cannot be compiled"):
        embedded_codec.constraint(GrammarSource(lark="start: ("))


def test_a_grammar_with_nothing_left_to_say_fails_its_sequence(embedded_codec: TemplateCodec) -> None:
    banned = frozenset(token for token in range(embedded_codec.info.vocabulary))
    with pytest.raises(GenerationFailed, match="no token"):
        embedded_codec.constraint(GrammarSource(lark='start: "a"', banned=banned)).mask()


def test_the_same_tools_give_the_same_source(embedded_codec: TemplateCodec) -> None:
    first = embedded_codec.grammar([CALCULATOR, NOTES], ToolChoice.AUTO, parallel=True)
    assert embedded_codec.grammar([CALCULATOR, NOTES], ToolChoice.AUTO, parallel=True) == first
    assert embedded_codec.grammar([NOTES, CALCULATOR], ToolChoice.AUTO, parallel=True) != first


@pytest.mark.parametrize(
    ("answer", "begins"),
    [({"const": "ab cd " * 100_000}, '"ab cd ab cd'), ({"type": "string", "pattern": "^(ab){100000}$"}, '"abababab')],
)
def test_what_a_schema_forces_at_length_is_guessed_a_piece_at_a_time(
    embedded_codec: TemplateCodec, answer: dict[str, Any], begins: str
) -> None:
    source = embedded_codec.grammar((), ToolChoice.NONE, parallel=True, answer=answer)
    assert source is not None
    guessed, held = embedded_codec.constraint(source), embedded_codec.constraint(source)
    vocabulary = embedded_codec.info.vocabulary
    said = []
    for _ in range(40):
        token = guessed.forced()[0]
        # The guess has changed nothing: what is allowed is what is allowed without one.
        assert allowed(guessed.mask(), vocabulary) == allowed(held.mask(), vocabulary)
        for constraint in (guessed, held):
            constraint.accept(token)
        said.append(token)
    assert "".join(map(embedded_codec.decoder().push, said)).startswith(begins)


def test_less_is_guessed_for_a_model_that_spells_otherwise(embedded_codec: TemplateCodec) -> None:
    source = embedded_codec.grammar((), ToolChoice.NONE, parallel=True, answer={"const": "temperature " * 100})
    assert source is not None
    constraint = embedded_codec.constraint(source)
    first = len(constraint.forced())
    for letter in '"' + "temperature " * 3:
        constraint.accept(embedded_codec.tokenize(letter)[0])
        least = len(constraint.forced())
    assert least < first // 4
    told = []
    for _ in range(60):
        told.append(len(constraint.forced()))
        constraint.accept(constraint.forced()[0])
    assert max(told) >= first // 2
