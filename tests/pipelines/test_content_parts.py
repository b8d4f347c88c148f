"""Chat templates that read contents as lists of parts are given lists, and all others texts."""

from collections.abc import Sequence

import pytest

from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.placeholders import Placeholder
from tenuto.pipelines.scripted import ScriptedTokenizer
from tenuto.sessions.items import AssistantItem, Attachment, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tests.pipelines.families import CHATML
from tests.pipelines.pictures import picture
from tests.pipelines.test_images import Reader

# As SmolVLM and Idefics 3 have it: https://huggingface.co/HuggingFaceTB/SmolVLM-Instruct/blob/main/chat_template.json
SMOL = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
REFUSING = SMOL.replace(
    "{% for line in message['content'] %}",
    "{% if message.content is string %}{{ raise_exception('parts only') }}{% endif %}"
    "{% for line in message['content'] %}",
)
TOOLS_OR_NONE = REFUSING.replace("<|im_start|>{%", "{% if tools is not none %}TOOLS{% endif %}<|im_start|>{%", 1)
# The model's own words and its tools' are texts, as in Mistral's.
MIXED = (
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.role == 'user' %}{% for part in m.content %}{{ part.text }}{% endfor %}{% else %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
EITHER = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}PART{{ part.text }}{% endfor %}{% endif %};{% endfor %}"
)

TALK: list[Item] = [SystemItem("Be brief."), UserItem("one"), AssistantItem("two"), UserItem("three")]


def written(template: str, items: Sequence[Item]) -> str:
    spans = ChatTemplate(template, {}).suffix([], items, []).spans
    return "".join(part.content if isinstance(part, Placeholder) else part for span in spans for part in span)


@pytest.mark.parametrize("template", [SMOL, REFUSING, TOOLS_OR_NONE])
def test_a_template_of_lists_reads_texts(template: str) -> None:
    assert written(template, TALK) == (
        "<|im_start|>System: Be brief.<end_of_utterance>\nUser: one<end_of_utterance>\n"
        "Assistant: two<end_of_utterance>\nUser: three<end_of_utterance>\nAssistant:"
    )


def test_what_takes_texts_is_given_texts() -> None:
    assert "PART" not in written(EITHER, TALK)
    assert written(CHATML, TALK).startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_only_the_roles_that_need_lists_have_them() -> None:
    called = AssistantItem("", calls=(ToolCall("c", "f", "{}"),))
    result = ToolResultItem("c", "f", "sun")
    assert written(MIXED, [UserItem("one"), called, result]) == "[user]one[assistant]f{}[tool]sun[assistant]"


def test_a_template_of_lists_has_a_place_for_images() -> None:
    codec = TemplateCodec("m", ScriptedTokenizer(), SMOL, images=Reader())
    assert codec.info.modalities == {"text", "image"}
    item = UserItem("look", (Attachment("image", "image/png", picture(1)),))
    (span,) = codec.suffix([], [item], [], ended=False).items
    (one, other) = codec.pieces([item])
    assert {*one.span, *other.span} <= set(span)
    assert codec.detokenize([token for token in span if token < codec.info.vocabulary]).endswith("look")
