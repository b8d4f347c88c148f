"""The notes of the built-in tools, kept in the store beside the sessions they belong to."""

from tenuto.sessions.changes import PutNote
from tenuto.sessions.store import Store


class StoredNotes:
    """What tools/builtin needs of a keeper of notes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, scope: str, key: str, text: str) -> None:
        """Keep the text under the key; durable on return."""
        await self._store.commit(PutNote(scope, key, text))

    async def get(self, scope: str, key: str) -> str | None:
        """The text, or None where there is none."""
        return await self._store.note(scope, key)

    async def keys(self, scope: str) -> list[str]:
        """All keys of the scope, in the order of their first put."""
        return [*await self._store.notes(scope)]
