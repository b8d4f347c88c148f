"""Notes belong to a session, or to a principal outside of sessions, and their number and size are bounded."""

from tenuto.tools.builtin import Notes
from tenuto.tools.builtin.notes import MAX_KEY_CHARACTERS, MAX_NOTES, MAX_TEXT_CHARACTERS
from tenuto.tools.spec import CallContext, ToolResult


class MemoryKeeper:
    """Keeps notes for as long as the test lasts."""

    def __init__(self) -> None:
        self.notes: dict[str, dict[str, str]] = {}

    async def put(self, scope: str, key: str, text: str) -> None:
        self.notes.setdefault(scope, {})[key] = text

    async def get(self, scope: str, key: str) -> str | None:
        return self.notes.get(scope, {}).get(key)

    async def keys(self, scope: str) -> list[str]:
        return list(self.notes.get(scope, {}))


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
    for key in ("", "  ", "two\nlines", "k" * (MAX_KEY_CHARACTERS + 1)):
        assert (await put(notes, key, "text")).is_error
    assert (await put(notes, "k", "t" * (MAX_TEXT_CHARACTERS + 1))).is_error
    for number in range(MAX_NOTES):
        assert not (await put(notes, str(number), "text")).is_error
    full = await put(notes, "one more", "text")
    assert full.is_error
    assert "200 notes" in full.text
    assert await put(notes, "0", "replaced") == ToolResult("saved")


async def test_what_may_be_repeated_is_annotated() -> None:
    annotations = {tool.spec.name: tool.annotations for tool in await Notes(MemoryKeeper()).list()}
    assert annotations["put"].idempotent
    assert not annotations["put"].read_only
    assert annotations["get"].read_only
    assert annotations["list"].read_only


async def test_list_takes_no_arguments() -> None:
    listing = (await Notes(MemoryKeeper()).list())[2]
    assert listing.spec.parameters == {"type": "object", "properties": {}, "required": []}
