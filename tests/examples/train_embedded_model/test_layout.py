"""The text that is trained on is the text that a server renders, token for token."""

import json
import random
import sys
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("faker")
pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")
pytest.importorskip("tokenizers")
from train_embedded_model.conversations import Conversation, conversation
from train_embedded_model.layout import MACROS, TEMPLATE
from train_embedded_model.tokens import Encoder, train_tokenizer

from tenuto.pipelines.base import Codec
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.mlx import MlxTokenizer
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem

END = "<|im_end|>"
SEEDS = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokeniser, where a server looks for it."""
    path = tmp_path_factory.mktemp("tokens")
    train_tokenizer(path / "tokenizer.json", vocabulary=900, seed=1, conversations=300)
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(facts))
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return Encoder(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def codec(folder: Path, encoder: Encoder) -> Codec:
    return TemplateCodec("trained", MlxTokenizer(folder, encoder.vocabulary), TEMPLATE)


def items_of(talk: Conversation) -> list[Item]:
    items: list[Item] = [SystemItem(talk.system)] if talk.system else []
    waiting: list[ToolCall] = []
    for number, message in enumerate(talk.messages):
        match message.role:
            case "user":
                items.append(UserItem(message.text))
            case "assistant":
                calls = tuple(
                    ToolCall(f"call_{number}_{place}", name, json.dumps(arguments, ensure_ascii=False))
                    for place, (name, arguments) in enumerate(message.calls)
                )
                waiting += calls
                items.append(AssistantItem(message.text, calls=calls))
            case "tool":
                call = waiting.pop(0)
                items.append(ToolResultItem(call.id, call.name, message.text))
    return items


def specs_of(talk: Conversation) -> list[ToolSpec]:
    functions = [tool["function"] for tool in talk.tools]
    return [ToolSpec(each["name"], each["description"], each["parameters"]) for each in functions]


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_a_server_renders_the_tokens_that_were_trained_on(
    codec: Codec, encoder: Encoder, seed: int, test: bool
) -> None:
    talk = conversation(random.Random(seed), test=test)
    rendered = codec.suffix([], items_of(talk), specs_of(talk), ended=True)
    tokens = [token for item in rendered.items for token in item] + list(rendered.opening)
    wanted, _ = encoder.encode(talk)
    assert tokens[: len(wanted)] == wanted


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_longer_conversation_begins_with_the_rendering_of_the_shorter_one(seed: int) -> None:
    talk = conversation(random.Random(seed), turns=4)
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE)
    messages = []
    for message in talk.messages:
        calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in message.calls]
        messages.append({"role": message.role, "content": message.text, "tool_calls": calls})
    whole = template.render(messages=messages, tools=talk.tools)
    for count in range(1, len(messages)):
        before = template.render(messages=messages[:count], tools=talk.tools)
        if messages[count - 1]["role"] == "tool" == messages[count]["role"]:
            before = before.removesuffix("<|im_end|>\n")
        assert whole.startswith(before)


def test_a_schema_of_a_real_server_is_told_in_a_few_words() -> None:
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE)
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Log",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "repo_path": {"title": "Repo Path", "type": "string"},
            "since": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "A date"},
            "edits": {
                "type": "array",
                "items": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]},
            },
            "order": {"enum": ["asc", "desc"]},
        },
        "required": ["repo_path", "edits"],
    }
    tool = {"type": "function", "function": {"name": "git__log", "description": "The log", "parameters": schema}}
    assert template.render(messages=[], tools=[tool]) == (
        "<|im_start|>system\n<tools>\n# The log\ngit__log\n- repo_path: string\n- since?: string A date\n"
        '- edits: object[]\n  - old: string\n- order?: "asc"|"desc"\n</tools><|im_end|>\n'
    )


def test_macros_end_where_contents_begin() -> None:
    assert '", "arguments": ' in MACROS
    assert all(not macro.endswith('{"') or macro == '{"' for macro in MACROS)
