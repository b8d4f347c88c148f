"""What is known of an agent client: how it is told of a server, and what it needs of one. Pure."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

KEY = "TENUTO_CLIENT_KEY"
"""The environment variable that holds the server's key, for clients that take a variable's name."""
NO_KEY = "tenuto"
"""What clients get as a key where the server wants none: most of them insist on one."""
_MOST_OUTPUT = 32_000
_HIDDEN = "(the key)"


@dataclass(frozen=True, slots=True)
class Target:
    """A server as a client is told of it: without a slash at the end of its URL, with one of its models."""

    url: str
    model: str
    context: int
    key: str | None = field(default=None, repr=False)
    mcp: bool = False
    """Whether the client is to have the server as an MCP server too."""

    @property
    def key_or_any(self) -> str:
        """A key for clients that insist on one."""
        return self.key or NO_KEY

    @property
    def bearer(self) -> dict[str, str]:
        """The headers of an MCP client."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def output(self) -> int:
        """Most tokens of an answer: clients keep so much of the context free, so it must not be most of it."""
        return min(_MOST_OUTPUT, self.context // 4)


@dataclass(frozen=True, slots=True)
class Setup:
    """How a client is started: with these arguments before the user's own, and this environment; None removes.

    `settings` is what a client takes from a file alone; the file is ours, and `settings_variable` is to name it.
    """

    environment: Mapping[str, str | None] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    settings: str | None = None
    settings_variable: str = ""


@dataclass(frozen=True, slots=True)
class Installed:
    """What a client's own configuration would have: a file below the user's home, and what it has then.

    `merged` goes into what there is in the file; `text` is the whole of a file that is ours. `use` says how it is used.
    """

    path: str
    use: str
    merged: Mapping[str, object] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """A client. `first_request` is about how many tokens it sends before anything is said; `package` is npm's."""

    name: str
    title: str
    program: str
    package: str
    first_request: int
    setup: Callable[[Target], Setup]
    installed: Callable[[Target], Installed]

    @property
    def least_context(self) -> int:
        """The smallest context in which it can work: its first request, and half as much again to work with."""
        return self.first_request * 3 // 2


def shown(program: str, setup: Setup, target: Target, more: tuple[str, ...]) -> str:
    """The start as a command for a shell, with the key left out."""
    removed = [f"-u {name}" for name, value in setup.environment.items() if value is None]
    given = [f"{name}={_quoted(value, target)}" for name, value in setup.environment.items() if value is not None]
    words = [_quoted(word, target) for word in (*setup.arguments, *more)]
    begin = [" ".join(["env", *removed])] if removed else []
    return " \\\n  ".join([*begin, *given, " ".join([program, *words])])


def _quoted(text: str, target: Target) -> str:
    return shlex.quote(text if target.key is None else text.replace(target.key, _HIDDEN))
