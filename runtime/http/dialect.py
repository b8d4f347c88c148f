"""What a dialect is to the server: its routes, the form of its errors, and how its requests are told from others'."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.routing import Route, WebSocketRoute
from starlette.types import Scope

from tenuto.runtime.http.errors import ErrorForm

_KEY = "tenuto.dialect"
_PREFIX = "/v1"
_SLASHES = re.compile("//+")


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """A wire format. A request is of the dialect that has a route for its path.

    Where several have one, or none, it is of the one of which it carries one of the `marks`: headers, in lower case,
    that only its clients send. Where none has one, it is else of the one whose `home` its path begins with.
    `key_header` is a header in which its clients send their keys, besides Authorization.
    """

    name: str
    errors: ErrorForm
    routes: tuple[Route | WebSocketRoute, ...]
    marks: frozenset[str] = frozenset()
    key_header: str | None = None
    home: str | None = None


class Dialects:
    """All dialects of a server. What is nobody's, and what cannot be understood so far, is the house's.

    Raises:
        ValueError: two of them have a path and neither has marks, or a name is given twice.
    """

    def __init__(self, house: Dialect, others: Sequence[Dialect] = ()) -> None:
        self.house = house
        self.all = (house, *others)
        self._fixed: dict[str, tuple[Dialect, ...]] = {}
        """By path, for the paths without parameters."""
        for dialect in self.all:
            for path in {route.path for route in dialect.routes if "{" not in route.path}:
                self._fixed[path] = (*self._fixed.get(path, ()), dialect)
        _check(self.all)

    def route_path(self, path: str) -> str:
        """The path of a route that a client means by a path: clients double slashes, end in one, and leave out or
        repeat `/v1`. They are redirected nowhere: some repeat no body, and some no key."""
        if self._owners(path):
            return path
        bare = _SLASHES.sub("/", path)
        meant = (bare, f"{_PREFIX}{bare}", bare.removeprefix(_PREFIX))
        without_slash = (one.removesuffix("/") for one in meant)
        return next((one for one in (*meant, *without_slash) if self._owners(one)), path)

    def of(self, scope: Scope) -> Dialect:
        """Whose request it is."""
        owners = self._owners(self.route_path(scope["path"]))
        if len(owners) == 1:
            return owners[0]
        names = set(Headers(scope=scope).keys())
        marked = (dialect for dialect in owners or self.all if not names.isdisjoint(dialect.marks))
        unmarked = (dialect for dialect in owners or self._at_home(scope["path"]) if not (owners and dialect.marks))
        return next(marked, None) or next(unmarked, self.house)

    def errors_of(self, scope: Scope) -> ErrorForm:
        """The form in which a request's client reads errors."""
        return self.of(scope).errors

    def _at_home(self, path: str) -> Iterator[Dialect]:
        return (dialect for dialect in self.all if dialect.home is not None and path.startswith(dialect.home))

    def _owners(self, path: str) -> tuple[Dialect, ...]:
        """The dialects that have a route for a path."""
        if path in self._fixed:
            return self._fixed[path]
        return tuple(one for one in self.all if any(route.path_regex.match(path) for route in one.routes))


def _check(dialects: Iterable[Dialect]) -> None:
    names: set[str] = set()
    owners: dict[str, str] = {}
    for dialect in dialects:
        if dialect.name in names:
            raise ValueError(f"there are two dialects named {dialect.name!r}")
        names.add(dialect.name)
        for path in set() if dialect.marks else {route.path for route in dialect.routes}:
            if path in owners:
                raise ValueError(
                    f"{owners[path]!r} and {dialect.name!r} both have {path}, and no marks tell them apart"
                )
            owners[path] = dialect.name


def recognise(scope: Scope, dialect: Dialect) -> None:
    """Note whose request it is, for all who answer it."""
    scope[_KEY] = dialect


def dialect_of(scope: Scope) -> Dialect:
    """Whose request it is. Only behind what recognises requests."""
    dialect = scope[_KEY]
    assert isinstance(dialect, Dialect)
    return dialect


def errors_of(connection: HTTPConnection) -> ErrorForm:
    """The form in which a request's client reads errors."""
    return dialect_of(connection.scope).errors
