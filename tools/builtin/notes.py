"""Notes that a model keeps for itself: a few texts by key, for one session or else for one principal."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tenuto.errors import TenutoError
from tenuto.sessions.notes import MOST_KEY_CHARACTERS, NotesFull, fault
from tenuto.tools.builtin.answers import READ_ONLY, failure, no_such_tool, tool
from tenuto.tools.spec import Annotations, CallContext, Tool, ToolResult


class NotesKeeper(Protocol):
    """Where notes are kept: those of a session, by its uid, or of a principal where there is no session."""

    async def notes(self, principal: str, session: str | None) -> Mapping[str, str]:
        """All of them, in the order of their first put."""

    async def put(self, principal: str, session: str | None, key: str, text: str) -> None:
        """Keep the text under the key; what stood there is replaced. Raises NotesFull."""


class Notes:
    """The built-in server `notes`. It holds no state: the keeper does."""

    name = "notes"

    def __init__(self, keeper: NotesKeeper) -> None:
        self._keeper = keeper
        putting = Annotations(idempotent=True, destructive=True, open_world=False)
        self._tools = [
            tool("put", "Save a note", ("key", "text"), putting),
            tool("get", "Read a note", ("key",), READ_ONLY),
            tool("list", "List the notes", (), READ_ONLY),
        ]

    async def list(self) -> list[Tool]:
        """All three tools, always."""
        return list(self._tools)

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        """Work on the notes of the caller's session, or of the principal where there is no session."""
        try:
            match name:
                case "put":
                    return await self._put(context, arguments["key"].strip(), arguments["text"])
                case "get":
                    return await self._get(context, arguments["key"].strip())
                case "list":
                    return ToolResult(_listing(await self._keeper.notes(context.principal, context.session)))
        except (NotesFull, TenutoError) as error:  # a session that is gone, a store that fails: the model reads why
            return failure(str(error))
        return no_such_tool(self.name, name, self._tools)

    async def _put(self, context: CallContext, key: str, text: str) -> ToolResult:
        if (problem := fault(key, text)) is not None:
            return failure(problem)
        await self._keeper.put(context.principal, context.session, _encodable(key), _encodable(text))
        return ToolResult("saved")

    async def _get(self, context: CallContext, key: str) -> ToolResult:
        notes = await self._keeper.notes(context.principal, context.session)
        if _encodable(key) in notes:
            return ToolResult(notes[_encodable(key)])
        known = f"the notes are {_listing(notes)}" if notes else "there are no notes"
        return failure(f"there is no note {key[:MOST_KEY_CHARACTERS]!r}; {known}")


def _encodable(text: str) -> str:
    """The text as UTF-8 can say it: half a character, which JSON can spell, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _listing(keys: Iterable[str]) -> str:
    return ", ".join(keys) or "no notes"
