"""A session as one JSON document: what GET of a session gives and PUT takes. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from tenuto.errors import InvalidRequest
from tenuto.sessions.ids import User, checked_session_id, new_hex
from tenuto.sessions.items import Item, JsonObject, SystemItem, ToolSpec
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.metadata import Metadata
from tenuto.sessions.notes import NotesFull, expect_room, fault
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.tool_limits import MOST_TOOLS, Description, Name, expect_within

VERSION = 1
MOST_ITEMS = 20_000
MOST_LEDGERS = 16
MOST_NAME_CHARACTERS = 128
"""Of the names that are ours: a session's id, and a codec's fingerprint."""
PAGE = 512

T = TypeVar("T")

_Token = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Parent(_Model):
    uid: str
    at: Annotated[int, Field(ge=0, lt=2**31)]


class _Ledger(_Model):
    fingerprint: Annotated[str, Field(min_length=1, max_length=MOST_NAME_CHARACTERS)]
    spans: list[list[_Token]]


class _Tool(_Model):
    name: Name
    description: Description
    parameters: JsonObject
    strict: bool | None = None


class Document(_Model):
    """What `export` gives and `restore` reads."""

    version: Literal[1]
    id: Annotated[str, Field(max_length=MOST_NAME_CHARACTERS)] | None = None
    created_at: float
    updated_at: float
    user: User | None = None
    parent: _Parent | None = None
    instructed: bool = False
    metadata: Metadata = {}
    items: Annotated[list[Item], Field(max_length=MOST_ITEMS)]
    ledgers: Annotated[list[_Ledger], Field(max_length=MOST_LEDGERS)] = []
    tools: Annotated[list[_Tool], Field(max_length=MOST_TOOLS)] | None = None
    notes: dict[str, str] = {}


_ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])
_TOOLS: TypeAdapter[list[ToolSpec]] = TypeAdapter(list[ToolSpec])


def snapshot(session: Session) -> Session:
    """The session as it is now, whatever becomes of it meanwhile. Its items are shared, the rest copied."""
    ledgers = {name: ledger.copy() for name, ledger in session.ledgers.items()}
    notes, history = {**session.notes}, session.history.copy()
    return replace(session, items=[*session.items], ledgers=ledgers, notes=notes, history=history)


def export(session: Session) -> JsonObject:
    """The document of a session: JSON values only. Approvals and runs are not part of it."""
    document: JsonObject = from_json(b"".join(pages(session)))
    return document


def pages(session: Session) -> Iterator[bytes]:
    """The JSON text of the document, in pieces of so many items that none takes long. Nobody changes the session."""
    parent = session.parent
    head = {
        "version": VERSION,
        "id": session.id,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "user": session.user,
        "parent": None if parent is None else {"uid": parent.uid, "at": parent.at},
        "instructed": session.instructed,
        "metadata": session.metadata,
    }
    yield to_json(head)[:-1] + b',"items":['
    yield from in_pages(session.items, _items_json)
    yield b'],"ledgers":['
    for place, ledger in enumerate(session.ledgers.values()):
        yield (b"," if place else b"") + b'{"fingerprint":' + to_json(ledger.fingerprint) + b',"spans":['
        yield from in_pages(range(ledger.items), partial(_spans_json, ledger))
        yield b"]}"
    tools = b"null" if session.server_tools is None else _TOOLS.dump_json(list(session.server_tools))
    yield b'],"tools":' + tools + b',"notes":' + to_json(session.notes) + b"}"


def in_pages(values: Sequence[T], dump: Callable[[Sequence[T]], bytes], size: int = PAGE) -> Iterator[bytes]:
    """The JSON text of an array, less its brackets, in pieces of `size` values. `dump` writes an array of some."""
    for start in range(0, len(values), size):
        yield (b"," if start else b"") + dump(values[start : start + size])[1:-1]


def _items_json(items: Sequence[Item]) -> bytes:
    return _ITEMS.dump_json(list(items))


def _spans_json(ledger: Ledger, items: Sequence[int]) -> bytes:
    return to_json([ledger.span(item) for item in items])


def restore_text(text: bytes, principal: str, id: str) -> Session:
    """The same from the document's JSON text; takes seconds for the largest."""
    try:
        document = from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        raise InvalidRequest(f"the body is not valid JSON: {exc}") from None
    return restore(document, principal, id)


def restore(document: Any, principal: str, id: str) -> Session:
    """A new explicit session of this principal and id from a document.

    Its ledgers are used only with a codec that has the same fingerprint.

    Raises:
        InvalidRequest: the document is not one of ours; the text and `param` name the place.
    """
    try:
        read = Document.model_validate(document)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_context=False)[0]
        path = ".".join(str(part) for part in error["loc"]) or "body"
        raise InvalidRequest(f"{path}: {error['msg']}", path) from exc
    if read.parent is not None:
        checked_session_id(read.parent.uid, "parent.uid")
    if read.instructed and not isinstance(next(iter(read.items), None), SystemItem):
        raise InvalidRequest("instructed: the first item is no system item", "instructed")
    session = Session(
        uid=new_hex(),
        principal=principal,
        id=id,
        created_at=read.created_at,
        updated_at=read.updated_at,
        user=read.user,
        parent=None if read.parent is None else Parent(read.parent.uid, read.parent.at),
        items=list(read.items),
        instructed=read.instructed,
        metadata=read.metadata,
        server_tools=None if read.tools is None else _tools(read.tools),
        ledgers=_ledgers(read),
        notes=_notes(read),
    )
    session.history.follow(session.items)  # here, where the session is made, and not when it is first used
    return session


def _tools(read: Sequence[_Tool]) -> tuple[ToolSpec, ...]:
    tools = tuple(ToolSpec(**dict(each)) for each in read)
    expect_within({f"tools.{index}": tool for index, tool in enumerate(tools)})
    return tools


def _ledgers(read: Document) -> dict[str, Ledger]:
    ledgers: dict[str, Ledger] = {}
    for index, one in enumerate(read.ledgers):
        path = f"ledgers.{index}"
        if one.fingerprint in ledgers:
            raise InvalidRequest(f"{path}: there are two ledgers {one.fingerprint!r}", path)
        if len(one.spans) > len(read.items):
            raise InvalidRequest(f"{path}: there are {len(one.spans)} spans for {len(read.items)} items", path)
        ledger = ledgers[one.fingerprint] = Ledger(one.fingerprint)
        for span in one.spans:
            ledger.append(span)
    return ledgers


def _notes(read: Document) -> dict[str, str]:
    notes: dict[str, str] = {}
    for key, text in read.notes.items():
        if (problem := fault(key, text)) is not None:
            raise InvalidRequest(f"notes: {problem}", "notes")
        try:
            expect_room(notes, key, text)
        except NotesFull as exc:
            raise InvalidRequest(f"notes: {exc}", "notes") from None
        notes[key] = text
    return notes
