"""What the runtime's own MCP server shows of a server behind it, by that server's entry in the `mcpServers` file. Pure.

"gateway": false
"gateway": {"tools": ["read_*"], "prompts": false, "resources": true, "keys": ["ann"], "names": {"read_file": "read"},
            "schemes": ["memo"]}
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from tenuto.sessions.principal import LOCAL

Kind = Literal["tools", "prompts", "resources"]
ShownName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]

_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):")
_NOT_THEIRS = ("mcp", "session", "model", "http", "https")
"""The schemes of what is ours, and of the web, which clients read by themselves."""


def scheme_of(uri: str) -> str:
    """The scheme of a URI, or of a form of URIs; empty where it has none."""
    found = _SCHEME.match(uri)
    return "" if found is None else found[1].lower()


def _scheme(said: str) -> str:
    if not said or scheme_of(f"{said}:") != said.lower():
        raise ValueError("must be the scheme of a URI, as the memo of memo://a")
    if said.lower() in _NOT_THEIRS:
        raise ValueError(f"is none that a server can have: {', '.join(_NOT_THEIRS)}")
    return said.lower()


ALL = ("*",)


@dataclass(frozen=True, slots=True)
class Gateway:
    """What is shown, by globs over the server's own names (of resources: their URIs), and to whom.

    `holders` are the principals that see any of it, besides this machine's own user; None: all. `names` are other names
    for tools and prompts. `schemes` are those of the URIs that are shown as they are at the server: no other server has
    them.
    """

    tools: tuple[str, ...] = ALL
    prompts: tuple[str, ...] = ALL
    resources: tuple[str, ...] = ALL
    holders: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    schemes: frozenset[str] = frozenset()

    def admits(self, principal: str) -> bool:
        """Whether a principal is one of those who see any of it."""
        return self.holders is None or principal in self.holders or principal == LOCAL.id

    def shows(self, principal: str, kind: Kind, name: str) -> bool:
        """Whether a principal sees a tool, a prompt or a resource of that name."""
        if not self.admits(principal):
            return False
        globs = {"tools": self.tools, "prompts": self.prompts, "resources": self.resources}[kind]
        return any(fnmatchcase(name, glob) for glob in globs)


CLOSED = Gateway((), (), ())


class GatewayEntry(BaseModel):
    """As the file has it."""

    model_config = ConfigDict(extra="forbid")

    tools: bool | list[str] = True
    prompts: bool | list[str] = True
    resources: bool | list[str] = True
    keys: list[str] | None = None
    names: dict[str, ShownName] = {}
    schemes: list[Annotated[str, AfterValidator(_scheme)]] = []


GatewayOrNot = Annotated[
    Annotated[bool, Tag("bool")] | Annotated[GatewayEntry, Tag("entry")],
    Discriminator(lambda said: "bool" if isinstance(said, bool) else "entry"),
]
"""As an entry has it. What is wrong with it is told of the form that was meant."""


def gateway(entry: GatewayEntry | bool) -> Gateway:
    """What an entry says; `keys` are names of holders, as `[[keys]]` has them."""
    match entry:
        case True:
            return Gateway()
        case False:
            return CLOSED
    holders = None if entry.keys is None else frozenset(f"user-{name}" for name in entry.keys)
    return Gateway(
        _globs(entry.tools),
        _globs(entry.prompts),
        _globs(entry.resources),
        holders,
        entry.names,
        frozenset(entry.schemes),
    )


def _globs(said: bool | list[str]) -> tuple[str, ...]:
    if isinstance(said, list):
        return tuple(said)
    return ALL if said else ()
