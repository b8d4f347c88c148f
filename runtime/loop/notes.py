"""The notes tool's notes, kept in the store beside their sessions."""

from tenuto.sessions.changes import PutNote
from tenuto.sessions.store import Store


class StoredNotes:
    """The NotesKeeper of the built-in notes. A scope is a session's uid or `principal:NAME`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, scope: str, key: str, text: str) -> None:
        """Write a note, over one of the same key."""
        await self._store.commit(PutNote(scope, key, text))

    async def get(self, scope: str, key: str) -> str | None:
        """Read a note."""
        return await self._store.note(scope, key)

    async def keys(self, scope: str) -> list[str]:
        """All keys, in the order in which they were first written."""
        return list(await self._store.notes(scope))
