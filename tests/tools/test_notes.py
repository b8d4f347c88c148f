"""Notes belong to a session, or to a principal outside of sessions, and their number and size are bounded."""

from collections import defaultdict

from tenuto.errors import NotFound
from tenuto.sessions.notes import MOST_KEY_CHARACTERS, MOST_NOTES, MOST_TEXT_CHARACTERS, expect_room
from tenuto.tools.builtin import Notes
from tenuto.tools.spec import CallContext, ToolResult


class MemoryKeeper:
    """Keeps notes for as long as the test lasts."""

    def __init__(self) -> None:
        self.books: dict[str, dict[str, str]] = defaultdict(dict)

    async def notes(self, principal: str, session: str | None) -> dict[str, str]:
        return self.books[session or f"principal:{principal}"]

    async def put(self, principal: str, session: str | None, key: str, text: str) -> None:
        book = await self.notes(principal, session)
        expect_room(book, key, text)
        book[key] = text


def context(session: str | None = "s1", principal: str = "ann") -> CallContext:
    return CallContext(principal=principal, session=session, run=None, call="call_1")


async def put(notes: Notes, key: str, text: str, where: CallContext | None = None) -> ToolResult:
    return await notes.call("put", {"key": key, "text": text}, where or context())


async def get(notes: Notes, key: str, where: CallContext | None = None) -> ToolResult:
    return await notes.call("get", {"key": key}, where or context())


async def test_a_note_is_saved_read_and_listed() -> None:
    notes = Notes(MemoryKeeper())
    assert await notes.call("list", {}, context()) == ToolResult("no notes")
    assert await put(notes, "shopping", "milk") == ToolResult("saved")
    assert await put(notes, "rex", "a dog") == ToolResult("saved")
    assert await get(notes, "shopping") == ToolResult("milk")
    assert await notes.call("list", {}, context()) == ToolResult("shopping, rex")


async def test_a_second_put_replaces_the_first() -> None:
    notes = Notes(MemoryKeeper())
    await put(notes, "a", "old")
    await put(notes, " a ", "new")
    assert await get(notes, "a") == ToolResult("new")
    assert (await notes.call("list", {}, context())).text == "a"


async def test_a_missing_note_is_an_error_that_names_those_there_are() -> None:
    notes = Notes(MemoryKeeper())
    assert await get(notes, "x") == ToolResult("Error: there is no note 'x'; there are no notes", is_error=True)
    await put(notes, "a", "1")
    await put(notes, "b", "2")
    assert await get(notes, "x") == ToolResult("Error: there is no note 'x'; the notes are a, b", is_error=True)


async def test_sessions_and_principals_do_not_see_each_other_s_notes() -> None:
    notes = Notes(MemoryKeeper())
    await put(notes, "k", "session", context("s1"))
    await put(notes, "k", "ann's", context(None, "ann"))
    await put(notes, "k", "bob's", context(None, "bob"))
    assert (await get(notes, "k", context("s1", "bob"))).text == "session"
    assert (await get(notes, "k", context(None, "ann"))).text == "ann's"
    assert (await get(notes, "k", context(None, "bob"))).text == "bob's"
    assert (await get(notes, "k", context("s2"))).is_error


async def test_keys_texts_and_their_number_are_bounded() -> None:
    notes = Notes(MemoryKeeper())
    for key in ("", "  ", "two\nlines", "k" * (MOST_KEY_CHARACTERS + 1)):
        assert (await put(notes, key, "text")).is_error
    assert (await put(notes, "k", "t" * (MOST_TEXT_CHARACTERS + 1))).is_error
    for number in range(MOST_NOTES):
        assert not (await put(notes, str(number), "text")).is_error
    full = await put(notes, "one more", "text")
    assert full.is_error
    assert "200 notes" in full.text
    assert await put(notes, "0", "replaced") == ToolResult("saved")


async def test_notes_that_are_too_many_bytes_already_may_be_shortened() -> None:
    keeper = MemoryKeeper()
    keeper.books["s1"] = {str(number): "t" * MOST_TEXT_CHARACTERS for number in range(60)}
    notes = Notes(keeper)
    refused = await put(notes, "one more", "text")
    assert refused.is_error
    assert "make this one or another shorter" in refused.text
    assert await put(notes, "0", "short") == ToolResult("saved")


async def test_a_keeper_that_fails_says_so_in_words() -> None:
    class Gone(MemoryKeeper):
        async def notes(self, principal: str, session: str | None) -> dict[str, str]:
            raise NotFound("session", session or principal)

    notes = Notes(Gone())
    for name in ("put", "get", "list"):
        result = await notes.call(name, {"key": "k", "text": "t"}, context("s"))
        assert result == ToolResult("Error: there is no session 's'", is_error=True)


async def test_half_a_character_is_a_question_mark() -> None:
    notes = Notes(MemoryKeeper())
    assert await put(notes, "k\ud800", "a\udfff") == ToolResult("saved")
    assert await get(notes, "k\ud800") == await get(notes, "k?") == ToolResult("a?")


async def test_what_may_be_repeated_is_annotated() -> None:
    annotations = {tool.spec.name: tool.annotations for tool in await Notes(MemoryKeeper()).list()}
    assert annotations["put"].idempotent
    assert not annotations["put"].read_only
    assert annotations["get"].read_only
    assert annotations["list"].read_only


async def test_list_takes_no_arguments() -> None:
    listing = (await Notes(MemoryKeeper()).list())[2]
    assert listing.spec.parameters == {"type": "object", "properties": {}, "required": []}
