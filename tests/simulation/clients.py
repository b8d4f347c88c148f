"""The clients of a history: they do what it says, remember what they were told, and know no more than that."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from tenuto.errors import CommitUnsettled, SessionPaused, ShuttingDown, StoreFailed, TenutoError
from tenuto.runtime.http.disconnect import ClientGone
from tenuto.runtime.loop.requests import SessionMode, ToolSelection, Turn
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, UserItem
from tenuto.sessions.principal import Principal
from tests.simulation.history import BYSTANDER, Op
from tests.simulation.oracle import Claim, Said
from tests.simulation.script import MINE
from tests.simulation.server import Reply, Server

if TYPE_CHECKING:
    from tests.simulation.play import Play

T = TypeVar("T")

PATIENCE_S, POLL_S = 0.8, 0.02


class Lost(Exception):
    """The server went away before it answered."""


@dataclass
class Known:
    """What all clients together have been told."""

    pauses: list[tuple[str, str]] = field(default_factory=list)
    """Principal and approval."""
    calls: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """Principal, session and calls that wait for a client."""
    runs: list[tuple[str, str]] = field(default_factory=list)
    documents: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


async def perform(play: "Play", ops: list[Op]) -> None:
    """Do these, one after the other."""
    for op in ops:
        await asyncio.sleep(op.after)
        client = Client(play, op)
        await getattr(client, op.kind)()


@dataclass
class Client:
    """One operation of a client."""

    play: "Play"
    op: Op

    @property
    def known(self) -> Known:
        return self.play.known

    async def turn(self) -> None:
        """Say something; once more at the same time where the history wants it, as a client does that retries."""
        if self.op.twice:
            await asyncio.gather(self._turn(), self._turn())
        else:
            await self._turn()

    async def _turn(self) -> None:
        op = self.op
        assert op.session is not None
        key = f"key-{op.word}" if op.key else None
        turn = self._request((UserItem(f"{op.say} {op.word}"),), op.session, key)
        for _ in range(2):
            claim = self.play.oracle.say((op.principal, op.session), op.word, keyed=key)
            if not await self._chat(turn, claim):
                return

    async def result(self) -> None:
        """Bring what a call of the client's came to."""
        found = await self._find(self.known.calls, lambda one: one[0] == self.op.principal)
        if found is None:
            return
        _, session, calls = found
        items = tuple(ToolResultItem(call, "mine", f"brought {self.op.word}") for call in calls)
        await self._chat(self._request(items, session, None), self.play.oracle.say((self.op.principal, session)))

    async def match(self) -> None:
        """Repeat a conversation, as clients do that know of no sessions, and say something more."""
        found = await self._find(self.known.documents, lambda one: one[0] == self.op.principal, wait=False)
        if found is None:
            return
        history = [item for item in map(_item, found[1]["items"]) if item is not None]
        turn = self._request((*history, UserItem(f"{self.op.say} {self.op.word}")), None, None)
        self.play.oracle.asked[self.op.word] += 1
        await self._chat(turn, None)

    async def _chat(self, turn: Turn, claim: Said | None) -> bool:
        """Whether the server was lost."""
        op, play = self.op, self.play
        reader = None
        if op.reads is not None:
            seen = op.reads

            async def take(number: int) -> None:
                if number > seen:
                    await asyncio.sleep(1000.0)

            reader = take
        if op.aborts is not None and turn.session_id is not None:
            play.oracle.left.add((op.principal, turn.session_id))
        try:
            reply = await play.ask(lambda server: server.chat(turn, self._gone, reader, op.dialect), op.aborts)
        except Lost:
            return True
        except ClientGone:
            return False
        except SessionPaused as error:
            if error.pause_id.startswith("appr"):
                self.known.pauses.append((op.principal, error.pause_id))
            _refuse(claim, play)
            return False
        except TenutoError as error:
            # What failed in the middle may have been begun.
            if not isinstance(error, StoreFailed | ShuttingDown):
                _refuse(claim, play)
            play.told(op, error)
            return False
        self._learn(reply)
        play.answered(op, reply, claim)
        return False

    def _learn(self, reply: Reply) -> None:
        principal = self.op.principal
        self.known.runs.append((principal, reply.run))
        if reply.pause is not None:
            self.known.pauses.append((principal, reply.pause))
        if reply.calls:
            self.known.calls.append((principal, reply.session, reply.calls))

    async def decide(self) -> None:
        """Answer an approval; where the history wants it, differently at the same time."""
        found = await self._find(self.known.pauses, lambda one: one[0] == self.op.principal)
        if found is None:
            return
        if self.op.twice:
            await asyncio.gather(self._decide(found[1], self.op.yes), self._decide(found[1], not self.op.yes))
        else:
            await self._decide(found[1], self.op.yes)

    async def _decide(self, pause: str, yes: bool) -> None:
        op = self.op
        claim = self.play.oracle.decide(pause, yes=yes, remember=op.remember)
        run = await self._claimed(
            claim, lambda server: server.decide(op.principal, pause, approve=yes, remember=op.remember)
        )
        self.play.decision.set()
        if run is not None:
            self.known.runs.append((op.principal, run))
            await self._watch(run)

    async def watch(self) -> None:
        """Follow a run."""
        found = await self._find(self.known.runs, lambda one: one[0] == self.op.principal)
        if found is not None:
            await self._watch(found[1])

    async def _watch(self, run: str) -> None:
        try:
            self._learn(await self.play.ask(lambda server: server.watch(self.op.principal, run)))
        except Lost:
            pass
        except TenutoError as error:
            self.play.told(self.op, error)

    async def cancel(self) -> None:
        """Cancel a run."""
        found = await self._find([*self.known.runs, *self._working()], lambda one: one[0] == self.op.principal)
        if found is None:
            return
        claim = self.play.oracle.cancel(found[1])
        status = await self._claimed(claim, lambda server: server.cancel(self.op.principal, found[1]))
        if status in ("running", "paused"):
            self.play.wrong(f"run {found[1]} is {status} although its cancel was answered")

    def _working(self) -> list[tuple[str, str]]:
        """The runs whose ids came with the head of a stream."""
        return self.play.begun

    async def delete(self) -> None:
        key = self.op.principal, self.op.session or ""
        await self._claimed(self.play.oracle.wipe(key), lambda server: server.delete(*key))

    async def fork(self) -> None:
        key, new = (self.op.principal, self.op.session or ""), f"fork-{self.op.session}"
        claim = self.play.oracle.say((key[0], new))
        await self._claimed(claim, lambda server: server.fork(*key, new))

    async def export(self) -> None:
        key = self.op.principal, self.op.session or ""
        document = await self._claimed(None, lambda server: server.export(*key))
        if document is not None:
            self.known.documents.append((key[0], document))

    # The name of the method is the name of the operation.
    async def _import(self) -> None:
        key = self.op.principal, self.op.session or ""
        found = await self._find(self.known.documents, lambda one: True, wait=False)
        if found is None:
            return
        document = json.loads(json.dumps(found[1]))
        items = document["items"]
        answered = any(item["kind"] == "assistant" for item in items)  # else the next turn is in place of all that
        words = {item["text"].split()[-1] for item in items if item["kind"] == "user" and answered}
        claim = self.play.oracle.say(key, *words, wipes=True)
        self.play.oracle.replaced.add(key)
        await self._claimed(claim, lambda server: server.install(*key, document))

    async def wait(self) -> None:
        """Nothing more than the pause before it."""

    async def _claimed(self, claim: Claim | None, work: Callable[[Server], Coroutine[Any, Any, T]]) -> T | None:
        try:
            value = await self.play.ask(work)
        except Lost:
            return None
        except TenutoError as error:
            if not isinstance(error, CommitUnsettled | ShuttingDown):
                _refuse(claim, self.play)
            self.play.told(self.op, error)
            return None
        if claim is not None:
            claim.answered(self.play.now())
        return value

    async def _find(self, known: list[T], fits: Callable[[T], bool], wait: bool = True) -> T | None:
        """One of the newest; wait a little where there is none yet."""
        until = self.play.now() + PATIENCE_S
        while True:
            fitting = [one for one in known if fits(one)]
            if fitting:
                return fitting[-1 - self.op.pick % len(fitting)]
            if not wait or self.play.now() >= until:
                return None
            await asyncio.sleep(POLL_S)

    async def _gone(self) -> Any:
        """Return when the client leaves."""
        if self.op.lingers is not None:
            with anyio.move_on_after(PATIENCE_S * 3):
                await self.play.decision.wait()
            await asyncio.sleep(self.op.lingers)
        else:
            await asyncio.sleep(1e6 if self.op.leaves is None else self.op.leaves)
        return {"type": "http.disconnect"}

    def _request(self, items: tuple[Item, ...], session: str | None, key: str | None) -> Turn:
        tools = ToolSelection(given=True, client=(MINE,), servers={"b": None, "g": None})
        return Turn(
            Principal(self.op.principal),
            None,
            items,
            session_id=session,
            mode=SessionMode.AUTO,
            tools=tools,
            wants_events=self.op.principal != BYSTANDER,
            idempotency_key=key,
        )


setattr(Client, "import", Client._import)


def _refuse(claim: Claim | None, play: "Play") -> None:
    if claim is not None:
        claim.refuse(play.now())


def _item(item: dict[str, Any]) -> Item | None:
    """What a client shows of an item that it was shown."""
    match item["kind"]:
        case "user":
            return UserItem(item["text"])
        case "assistant" if item["text"] and not item["calls"]:
            return AssistantItem(item["text"])
    return None
