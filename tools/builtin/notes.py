"""Notes that a model keeps for itself: a few texts by key, for one session or else for one principal."""

from typing import Any, Protocol

from tenuto.tools.builtin.answers import READ_ONLY, failure, no_such_tool, tool
from tenuto.tools.spec import Annotations, CallContext, Tool, ToolResult

MAX_KEY_CHARACTERS = 100
MAX_TEXT_CHARACTERS = 20_000
MAX_NOTES = 200
"""Per scope."""


class NotesKeeper(Protocol):
    """Where notes are kept. A scope is a session's uid, or `principal:` and the principal's name."""

    async def put(self, scope: str, key: str, text: str) -> None:
        """Keep the text under the key; what stood there is replaced."""

    async def get(self, scope: str, key: str) -> str | None:
        """The text, or None where there is none."""

    async def keys(self, scope: str) -> list[str]:
        """All keys of the scope, in the order of their first put."""


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
        scope = context.session or f"principal:{context.principal}"
        match name:
            case "put":
                return await self._put(scope, arguments["key"].strip(), arguments["text"])
            case "get":
                return await self._get(scope, arguments["key"].strip())
            case "list":
                return ToolResult(_listing(await self._keeper.keys(scope)))
        return no_such_tool(self.name, name, self._tools)

    async def _put(self, scope: str, key: str, text: str) -> ToolResult:
        if not key or "\n" in key or len(key) > MAX_KEY_CHARACTERS:
            return failure(f"a note's key is one line of 1 to {MAX_KEY_CHARACTERS} characters")
        if len(text) > MAX_TEXT_CHARACTERS:
            return failure(f"the text has {len(text)} characters; a note takes {MAX_TEXT_CHARACTERS}")
        keys = await self._keeper.keys(scope)
        if key not in keys and len(keys) >= MAX_NOTES:
            return failure(f"there are {MAX_NOTES} notes already; put a new text under one of their keys")
        await self._keeper.put(scope, key, text)
        return ToolResult("saved")

    async def _get(self, scope: str, key: str) -> ToolResult:
        text = await self._keeper.get(scope, key)
        if text is not None:
            return ToolResult(text)
        keys = await self._keeper.keys(scope)
        known = f"the notes are {_listing(keys)}" if keys else "there are no notes"
        return failure(f"there is no note {key[:MAX_KEY_CHARACTERS]!r}; {known}")


def _listing(keys: list[str]) -> str:
    return ", ".join(keys) or "no notes"
