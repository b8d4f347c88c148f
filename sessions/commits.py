"""Commits of sessions, whose outcome is always learnt: by whoever commits, or before the session is read again."""

import asyncio
from collections.abc import Callable

import anyio

from tenuto.errors import CommitUnsettled, TenutoError
from tenuto.sessions.changes import Change
from tenuto.sessions.session import Key
from tenuto.sessions.storage.store import Store

_COMMIT_S = 30.0
"""How long a commit is waited for, and then its outcome before the session is read again."""


class Commits:
    """Commits to the store. Event-loop thread only.

    `give_up` is told of a session of which nobody knows what was kept: what is in memory of it must be forgotten.
    """

    def __init__(self, store: Store, give_up: Callable[[Key], None]) -> None:
        self._store, self._give_up = store, give_up
        self._unsettled: dict[Key, set[asyncio.Future[None]]] = {}
        """Commits of which nobody knows yet whether they were kept."""

    async def make(self, key: Key, *changes: Change) -> None:
        """Commit changes of a session, and wait until the outcome is known. Cancelling does not stop it.

        Raises:
            StoreFailed, Overloaded: nothing is kept.
            CommitUnsettled: nobody knows; the session is given up.
        """
        outcome = self._store.begin(*changes)
        try:
            with anyio.move_on_after(_COMMIT_S, shield=True):
                await asyncio.shield(outcome)
                return
        except BaseException as error:
            if not isinstance(error, TenutoError) or isinstance(error, CommitUnsettled):
                self._lose(key, outcome)
            raise
        self._lose(key, outcome)
        raise CommitUnsettled(
            f"the store did not answer within {_COMMIT_S:g} s; whether this was stored is not known yet"
        )

    def _lose(self, key: Key, outcome: asyncio.Future[None]) -> None:
        self._give_up(key)
        if not outcome.done():
            self._unsettled.setdefault(key, set()).add(outcome)

    async def settle(self, key: Key) -> None:
        """Wait for the outcome of every commit that was given up; nothing of the session is read before it is known.

        Raises:
            CommitUnsettled: it is not known yet.
        """
        outcomes = self._unsettled.get(key)
        if outcomes is None:
            return
        with anyio.move_on_after(_COMMIT_S):
            await asyncio.wait(outcomes)
        if not all(outcome.done() for outcome in outcomes):
            raise CommitUnsettled(f"the store has not answered yet what became of the last change of {key[1]!r}")
        self._unsettled.pop(key, None)
        for outcome in outcomes:
            outcome.exception()  # whoever began it has been told that it is not known
