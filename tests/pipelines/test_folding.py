"""What a template refuses as it stands is folded into what it takes, and what has been written stays as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.folding import Takes
from tenuto.pipelines.placeholders import Placeholder
from tenuto.pipelines.scripted import TEMPLATE
from tenuto.sessions.items import AssistantItem, Attachment, Item, SystemItem, ToolResultItem, UserItem
from tests.pipelines.families import DEEPSEEK, SHORT_SIGHTED

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
# No system message at all, as some models were made.
WITHOUT_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + (SHORT_SIGHTED["gemma"])
)
TEXTS = {**SHORT_SIGHTED, "deepseek": DEEPSEEK, "scripted": TEMPLATE, "without system": WITHOUT_SYSTEM}
TEMPLATES = {name: ChatTemplate(text, SPECIALS) for name, text in TEXTS.items()}

ALL = Takes()
ONE_SYSTEM = Takes(systems=False, late=False)
ALTERNATING = Takes(systems=False, late=False, users=False)
TAKES = {
    "chatml": ALL,
    "qwen": ALL,
    "llama": ALL,
    "mistral": ALTERNATING,
    "gemma": ALTERNATING,
    "deepseek": ONE_SYSTEM,
    "scripted": ALL,
    "without system": Takes(system=False, systems=False, late=False, users=False),
}

S1, S2, S3 = SystemItem("one"), SystemItem("two"), SystemItem("three")
U1, U2, A1 = UserItem("asked"), UserItem("asked again"), AssistantItem("said")


def written(name: str, items: list[Item]) -> str:
    """All that the template writes, as text."""
    spans = TEMPLATES[name].suffix([], items, []).spans
    return "".join(part.content if isinstance(part, Placeholder) else part for span in spans for part in span)


def spans(name: str, before: list[Item], new: list[Item]) -> list[str]:
    found = TEMPLATES[name].suffix(before, new, []).items
    return ["".join(part.content if isinstance(part, Placeholder) else part for part in span) for span in found]


@pytest.mark.parametrize("name", TAKES)
def test_what_a_template_takes_is_found_out_by_trying(name: str) -> None:
    assert TEMPLATES[name]._takes == TAKES[name]


def test_a_template_that_takes_a_late_system_message_gets_it_where_it_stands() -> None:
    assert written("qwen", [S1, U1, A1, U2, S2]).endswith(
        "<|im_start|>user\nasked again<|im_end|>\n<|im_start|>system\ntwo<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_late_system_message_is_a_note_of_the_user_where_the_template_takes_it_only_first() -> None:
    assert written("deepseek", [S1, U1, A1, U2, S2]) == (
        "<s>one<User>asked<Assistant>said</s><User>asked again<User>[system message]\ntwo<Assistant>"
    )
    assert written("mistral", [S1, U1, A1, U2, S2]) == (
        "<s>[SYSTEM]one[/SYSTEM][INST]asked[/INST] said</s>[INST]asked again\n\n[system message]\ntwo[/INST]"
    )


def test_several_system_messages_at_the_front_are_one_where_the_template_takes_one() -> None:
    assert written("mistral", [S1, S2, S3, U1]) == "<s>[SYSTEM]one\n\ntwo\n\nthree[/SYSTEM][INST]asked[/INST]"
    assert written("chatml", [S1, S2, U1]).count("<|im_start|>system") == 2


def test_a_model_without_system_messages_reads_them_in_its_first_request() -> None:
    assert written("without system", [S1, S2, U1]) == (
        "<s><start_of_turn>user\n[system message]\none\n\n[system message]\ntwo\n\nasked<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_requests_in_a_row_are_one_where_roles_must_alternate() -> None:
    assert written("gemma", [U1, U2, A1, U1]).startswith(
        "<s><start_of_turn>user\nasked\n\nasked again<end_of_turn>\n<start_of_turn>model\nsaid<end_of_turn>\n"
    )


items = st.lists(st.sampled_from([S1, S2, U1, U2]), min_size=1, max_size=3)
conversations = st.tuples(items, st.just([A1]), items).map(lambda parts: [item for part in parts for item in part])


@pytest.mark.parametrize("name", sorted({*TEMPLATES} - {"qwen"}))
@given(conversation=conversations, cut=st.integers(1, 6))
def test_what_has_been_written_stays_whatever_follows(name: str, conversation: list[Item], cut: int) -> None:
    """The ledger has the tokens of the items before: rendering in two steps gives what rendering at once gives.

    Qwen's own template writes an answer otherwise once more follows it.
    """
    if not any(isinstance(item, UserItem) for item in conversation[: conversation.index(A1)]):
        conversation = [U1, *conversation]
    asked = next(place for place, item in enumerate(conversation) if isinstance(item, UserItem))
    before, new = conversation[: max(cut, asked + 1)], conversation[max(cut, asked + 1) :]
    assert spans(name, [], before) + spans(name, before, new) == spans(name, [], conversation)


@pytest.mark.parametrize("text", ["", "What is this?"])
def test_what_a_model_cannot_see_reads_as_a_note_beside_the_text(text: str) -> None:
    carried = (Attachment("image", "image/png", data="aGk="), Attachment("audio", "audio/wav", data="aGk="))
    notes = (
        "[image: image/png, not shown: the model reads text only]\n"
        "[audio: audio/wav, not shown: the model reads text only]"
    )
    said = f"{text}\n{notes}" if text else notes
    assert f"<|im_start|>user\n{said}<|im_end|>" in written("chatml", [UserItem(text, carried)])
    result = ToolResultItem("c", "shoot", text, attachments=carried)
    assert said in written("chatml", [U1, A1, result])


def test_what_a_servers_tool_gave_is_named_by_its_text_already() -> None:
    result = ToolResultItem("c", "shoot", "[image/png]", server=True, attachments=(Attachment("image", "image/png"),))
    assert "not shown" not in written("chatml", [U1, A1, result])
