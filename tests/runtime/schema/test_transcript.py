"""What a model reads of a session: what was said, in pages of a bounded size."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.schema.transcript import transcript_answer
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    NoteItem,
    SystemItem,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from tenuto.sessions.session import Session

PICTURE = Attachment("image", "image/png", data="AAAA")
TALK: list[Item] = [
    SystemItem("Be brief."),
    UserItem("look", (PICTURE, Attachment("file", "text/plain", uri="https://example.org/a"))),
    AssistantItem("", "I had better look.", (ToolCall("call_1", "eye", '{"at": "it"}', server=True),)),
    ToolResultItem("call_1", "eye", "a cat", server=True, structured={"is": "cat"}, attachments=(PICTURE,)),
    AssistantItem("A cat", incomplete=True),
    NoteItem("That was no call."),
]


def of(items: list[Item]) -> Session:
    return Session(uid="u", id="s", principal="alice", created_at=1.0, updated_at=1.0, items=items)


def transcript(session: Session, **options: Any) -> dict[str, Any]:
    return transcript_answer(session, **options).model_dump(exclude_unset=True)


def test_a_transcript_has_what_was_said_called_and_answered_and_of_pictures_only_their_size() -> None:
    told = transcript(of(TALK))
    assert (told["num_items"], told["first"]) == (6, 0)
    assert told["items"] == [
        {"index": 0, "kind": "system", "text": "Be brief."},
        {
            "index": 1,
            "kind": "user",
            "text": "look",
            "attachments": [
                {"kind": "image", "mime_type": "image/png", "bytes": 3},
                {"kind": "file", "mime_type": "text/plain", "uri": "https://example.org/a"},
            ],
        },
        {
            "index": 2,
            "kind": "assistant",
            "text": "",
            "reasoning": "I had better look.",
            "calls": [{"id": "call_1", "name": "eye", "arguments": '{"at": "it"}'}],
        },
        {
            "index": 3,
            "kind": "tool_result",
            "text": "a cat",
            "call_id": "call_1",
            "name": "eye",
            "is_error": False,
            "attachments": [{"kind": "image", "mime_type": "image/png", "bytes": 3}],
        },
        {"index": 4, "kind": "assistant", "text": "A cat", "incomplete": True},
        {"index": 5, "kind": "note", "text": "That was no call."},
    ]


@given(st.lists(st.integers(0, 300_000), max_size=12), st.integers(1, 5))
def test_the_pages_of_a_transcript_have_all_items_once_in_order(sizes: list[int], limit: int) -> None:
    session = of([UserItem("x" * size) for size in sizes])
    found: list[int] = []
    before = None
    while before != 0:
        page = transcript(session, before=before, limit=limit)
        indexes = [item["index"] for item in page["items"]]
        assert len(indexes) <= limit
        assert len(indexes) == 1 or sum(len(item["text"]) for item in page["items"]) <= 400_000
        found[:0] = indexes
        assert page["first"] == (indexes[0] if indexes else 0)
        before = page["first"]
    assert found == list(range(len(sizes)))


def test_a_long_text_is_cut_in_its_middle() -> None:
    (item,) = transcript(of([UserItem("a" * 200_000 + "b")]))["items"]
    assert len(item["text"]) < 100_100
    assert item["text"].endswith("b")
    assert "[100001 characters omitted]" in item["text"]
