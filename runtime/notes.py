"""Who keeps the notes of the built-in tools: a session its own, and the store those of a principal outside of one."""

from collections.abc import Mapping

import anyio

from tenuto.sessions.changes import PutNote
from tenuto.sessions.directory import Directory
from tenuto.sessions.notes import expect_room
from tenuto.sessions.storage.store import Store


class Notebooks:
    """What tools/builtin needs of a keeper of notes. Event-loop thread only."""

    def __init__(self, directory: Directory, store: Store) -> None:
        self._directory, self._store = directory, store
        self._putting = anyio.Lock()

    async def notes(self, principal: str, session: str | None) -> Mapping[str, str]:
        """All notes, in the order of their first put. Raises NotFound where the session is gone."""
        if session is not None:
            return self._directory.notes(session)
        return await self._store.notes(_scope(principal))

    async def put(self, principal: str, session: str | None, key: str, text: str) -> None:
        """Keep the text under the key; durable on return, where the session is.

        Raises:
            NotesFull: there is no room for it.
            NotFound: the session is gone.
        """
        if session is not None:
            await self._directory.put_note(session, key, text)
            return
        async with self._putting:  # so that two at once find the room that there is
            expect_room(await self.notes(principal, None), key, text)
            await self._store.commit(PutNote(_scope(principal), key, text))


def _scope(principal: str) -> str:
    return f"principal:{principal}"
