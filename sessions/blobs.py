"""What repeats, once: lists of tools and schemas as one object in memory and one row in the store, by digest. No SQL.

Every request brings its whole tool block again, and a server's sessions all have the same one. Whoever is to keep such
a value asks for the one that is there already. Any thread.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, TypeVar

from tenuto.sessions.items import JsonObject, ToolSpec, tools_from_json, tools_to_json

T = TypeVar("T")

_DIGITS = 40
_KNOWN_BYTES = 32 << 20
"""So much memory is taken by each pool; what goes beyond it is only no longer found, by those who come later."""
_VALUE_BYTES = 120
"""A key and a small object, or a list in a list."""


def digest(body: bytes) -> str:
    """The name of a blob."""
    return sha256(body).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that many rows name."""

    digest: str
    body: bytes = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Shared(Generic[T]):
    """A value that repeats, with its stored form. It is one object for all who hold an equal one; nobody changes it."""

    blob: Blob
    value: T = field(compare=False)

    @property
    def nbytes(self) -> int:
        """About what it takes in memory: the stored form, the text in the value, and an object for each JSON value."""
        return 2 * len(self.blob.body) + _VALUE_BYTES * (1 + self.blob.body.count(b","))


class Pool(Generic[T]):
    """Values by digest, the last used ones. `identity` names a value by the objects that it is made of."""

    def __init__(
        self, dump: Callable[[T], str], load: Callable[[bytes], T], identity: Callable[[T], Hashable], size: int
    ) -> None:
        self._dump, self._load, self._identity, self._size = dump, load, identity, size
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Shared[T]] = OrderedDict()
        # An identity holds for as long as the objects live, and those of what is known do.
        self._digests: dict[Hashable, str] = {}
        self._bytes = 0

    def of(self, value: T) -> Shared[T]:
        """The one that stands for a value."""
        identity = self._identity(value)
        with self._lock:
            name = self._digests.get(identity)
            if name is not None:
                self._known.move_to_end(name)
                return self._known[name]
        body = self._dump(value).encode()
        return self._add(Shared(Blob(digest(body), body), value))

    def known(self, name: str) -> Shared[T] | None:
        """The one of that digest, where it is remembered."""
        with self._lock:
            return self._known.get(name)

    def read(self, name: str, body: bytes) -> Shared[T]:
        """The one that a stored form stands for. Raises ValueError where it is none of this kind."""
        return self.known(name) or self._add(Shared(Blob(name, body), self._load(body)))

    def _add(self, made: Shared[T]) -> Shared[T]:
        with self._lock:
            found = self._known.get(made.blob.digest)
            if found is not None:
                self._known.move_to_end(made.blob.digest)
                return found
            self._known[made.blob.digest] = made
            self._digests[self._identity(made.value)] = made.blob.digest
            self._bytes += made.nbytes
            while self._bytes > self._size and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                del self._digests[self._identity(oldest.value)]
                self._bytes -= oldest.nbytes
            return made


@dataclass(frozen=True, slots=True)
class ToolBlock:
    """The tools that a run's model sees, in order, which of them the client runs, and what servers say of theirs."""

    tools: tuple[ToolSpec, ...]
    client: frozenset[str]
    instructions: str = ""


def _dump_block(block: ToolBlock) -> str:
    told = f',"instructions":{json.dumps(block.instructions)}' if block.instructions else ""
    return f'{{"client":{json.dumps(sorted(block.client))},"tools":{tools_to_json(list(block.tools))}{told}}}'


def _load_block(body: bytes) -> ToolBlock:
    read: dict[str, Any] = json.loads(body)
    tools = tuple(tools_from_json(json.dumps(read["tools"])))
    return ToolBlock(tools, frozenset(read["client"]), read.get("instructions", ""))


def _same_tools(tools: Sequence[ToolSpec]) -> Hashable:
    return tuple(map(id, tools))


TOOLS: Pool[tuple[ToolSpec, ...]] = Pool(
    lambda tools: tools_to_json(list(tools)), lambda body: tuple(tools_from_json(body)), _same_tools, _KNOWN_BYTES
)
"""The server's tools, as sessions freeze them."""

BLOCKS: Pool[ToolBlock] = Pool(
    _dump_block, _load_block, lambda block: (_same_tools(block.tools), block.client, block.instructions), _KNOWN_BYTES
)

SCHEMAS: Pool[JsonObject] = Pool(json.dumps, json.loads, id, _KNOWN_BYTES)
"""What answers are held to."""
