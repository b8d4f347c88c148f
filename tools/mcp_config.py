"""The `mcpServers` file that Claude Desktop, Cursor and llama-server read, with a few keys of ours beside theirs.

Ours, in a server's entry: `permission` (auto, ask, deny, or an object from tool name or glob to one of them),
`timeout_s`, `start_timeout_s`, `max_concurrency`, `disabled`, `era` (auto, legacy, modern),
`instance` (shared, session), `oauth`, `headers_command`,
`bearer_command`, `sandbox`, and `tools`, an object from tool name or glob to `permission`, `timeout_s` and
`max_concurrency` of those tools alone. `gateway` says what MCP clients see. `instructions`, `sampling` and `roots` say
what the server may tell and ask; `roots` beside `mcpServers` is for all entries that have none.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from tenuto.errors import ConfigurationError
from tenuto.tools.approvals import Permission, Rules
from tenuto.tools.egress import Egress
from tenuto.tools.gateway import Gateway, gateway
from tenuto.tools.mcp_credentials import HeaderCommand, OAuthEntry, OAuthSettings, words_of
from tenuto.tools.mcp_entry import Entry, Era, File, HttpKind, Instance, RootEntries
from tenuto.tools.mcp_sandbox import Sandbox, sandbox
from tenuto.tools.names import sanitised
from tenuto.tools.patterns import matching
from tenuto.tools.roots import MOST_ROOTS, Root, joined, root
from tenuto.tools.sampling import OFF, SamplingSettings, sampling

logger = logging.getLogger(__name__)

VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OTHERS_KEYS = frozenset({"description", "autoApprove", "alwaysAllow", "timeout", "icon"})
"""Keys that other programs read in the same file; they mean nothing to us."""


@dataclass(frozen=True, slots=True)
class StdioTarget:
    """A program to start. Its arguments and its environment may hold secrets, so they are not shown.

    `expanded` is what variables of the environment gave to the arguments. `sandbox` confines it; None: it may do what
    this server may.
    """

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    expanded: tuple[str, ...] = field(default=(), repr=False)
    sandbox: Sandbox | None = None


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server to reach over HTTP. Its headers and its URL's query may hold secrets, so they are not shown.

    `egress` says where one may be that a request has brought; None: it was configured, and may be anywhere.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    kind: HttpKind = "auto"
    egress: Egress | None = None
    oauth: OAuthSettings | None = None
    command: HeaderCommand | None = None


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What holds for some tools of a server where it differs from what holds for all of them."""

    timeout_s: float | None = None
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One MCP server. `name` is its label in the file with anything but [a-zA-Z0-9_-] replaced.

    `permission` is looked up by the server's own tool names. `start_timeout_s` covers the connection and the first
    listing, `timeout_s` one call, `max_concurrency` the calls of one tool at a time. `most_listed_bytes` bounds a
    listing by the JSON text of its descriptions and schemas. `may_ask`: whether it is told that it can ask people.
    `roots` None: it is told of no folders, not even of those that sessions work in.
    """

    name: str
    target: StdioTarget | HttpTarget
    permission: Rules = field(default_factory=Rules)
    timeout_s: float = 120.0
    start_timeout_s: float = 60.0
    max_concurrency: int = 8
    disabled: bool = False
    tools: tuple[tuple[str, ToolSettings], ...] = ()
    most_listed_bytes: int = 32 << 20
    may_ask: bool = True
    era: Era = "auto"
    instance: Instance = "shared"
    gateway: Gateway = field(default_factory=Gateway)
    instructions: bool = True
    sampling: SamplingSettings = OFF
    roots: tuple[Root, ...] | None = None

    def timeout_of(self, tool: str) -> float:
        """What one call of this tool may take. Of several globs that match, the shortest time wins."""
        found = [each.timeout_s for each in matching(self.tools, tool) if each.timeout_s is not None]
        return min(found, default=self.timeout_s)

    def concurrency_of(self, tool: str) -> int:
        """How many calls of this tool may run at a time. Of several globs that match, the smallest number wins."""
        found = [each.max_concurrency for each in matching(self.tools, tool) if each.max_concurrency is not None]
        return min(found, default=self.max_concurrency)

    @property
    def longest_timeout_s(self) -> float:
        """What no call of any tool exceeds."""
        return max([self.timeout_s, *(each.timeout_s or 0 for _, each in self.tools)])


def read_mcp_config(path: Path, environ: Mapping[str, str] = os.environ) -> tuple[ServerConfig, ...]:
    """Read the file; servers stand in its order.

    Raises:
        ConfigurationError: it cannot be read or is not valid; the text names file, server and field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path}: cannot be read: {exc}") from exc
    return parse_mcp_config(text, str(path), environ)


def kept_in(configs: Sequence[ServerConfig], data_dir: Path) -> tuple[ServerConfig, ...]:
    """The same servers, with their logins and the homes of their sandboxes in a data folder."""

    def kept(config: ServerConfig) -> ServerConfig:
        match config.target:
            case HttpTarget(oauth=OAuthSettings() as oauth) as http:
                return replace(config, target=replace(http, oauth=oauth.kept_in(data_dir, config.name)))
            case StdioTarget(sandbox=Sandbox() as own) as stdio:
                return replace(config, target=replace(stdio, sandbox=own.kept_in(data_dir, config.name)))
        return config

    return tuple(map(kept, configs))


def parse_mcp_config(text: str, source: str, environ: Mapping[str, str] = os.environ) -> tuple[ServerConfig, ...]:
    """Read the text of such a file. `source` names it in errors.

    Raises:
        ConfigurationError: as `read_mcp_config`.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as exc:
        raise ConfigurationError(f"{source}: not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ConfigurationError(f"{source}: must be a JSON object with mcpServers")
    try:
        file = File.model_validate(value)
    except ValidationError as exc:
        raise ConfigurationError(f"{source}: {_first_problem(exc)}") from exc
    configs: dict[str, ServerConfig] = {}
    for label, raw in file.mcp_servers.items():
        config = _Reading(f"{source}: server {label!r}", environ, file.roots).server(label, raw)
        if config.name in configs:
            raise ConfigurationError(f"{source}: server {label!r}: another server is already called {config.name!r}")
        for other in configs.values():
            if shared := sorted(config.gateway.schemes & other.gateway.schemes):
                raise ConfigurationError(
                    f"{source}: server {label!r}: gateway.schemes: {shared[0]!r} is that of {other.name!r} already"
                )
        configs[config.name] = config
    return tuple(configs.values())


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads one entry; `place` begins every error."""

    place: str
    environ: Mapping[str, str]
    roots: RootEntries

    def server(self, label: str, raw: dict[str, Any]) -> ServerConfig:
        name = sanitised(label)
        if not label or len(name) > 48:
            self._refuse("a server's name has 1 to 48 characters")
        try:
            entry = Entry.model_validate(raw)
        except ValidationError as exc:
            self._refuse(_first_problem(exc))
        unknown = sorted(set(entry.model_extra or {}) - _OTHERS_KEYS)
        if unknown:
            logger.warning("%s: unknown keys are ignored: %s", self.place, ", ".join(unknown))
        return ServerConfig(
            name=name,
            target=self._target(entry),
            permission=_rules(entry),
            timeout_s=entry.timeout_s,
            start_timeout_s=entry.start_timeout_s,
            max_concurrency=entry.max_concurrency,
            disabled=entry.disabled,
            era=entry.era,
            instance=entry.instance,
            gateway=gateway(entry.gateway),
            tools=tuple(
                (pattern, ToolSettings(each.timeout_s, each.max_concurrency)) for pattern, each in entry.tools.items()
            ),
            instructions=entry.instructions,
            sampling=sampling(entry.sampling),
            roots=self._roots(entry),
        )

    def _target(self, entry: Entry) -> StdioTarget | HttpTarget:
        """A disabled entry is taken as it is written: its variables need not be set."""
        if (entry.command is None) == (entry.url is None):
            self._refuse("give either 'command' or 'url'")
        expand = (lambda _field, value: value) if entry.disabled else self._expand
        if entry.url is not None:
            if entry.sandbox is not False:
                self._refuse("sandbox: is for a 'command', not for a 'url'")
            headers = {name: expand(f"headers.{name}", value) for name, value in entry.headers.items()}
            url = expand("url", entry.url)
            if not url.startswith(("http://", "https://")):
                self._refuse("url: must begin with http:// or https://")
            command = self._command(entry)
            has_key = command is not None or any(name.lower() == "authorization" for name in headers)
            oauth = None if has_key else self._oauth(entry, expand)
            return HttpTarget(url, headers, self._kind(entry), oauth=oauth, command=command)
        assert entry.command is not None
        return StdioTarget(
            command=expand("command", entry.command),
            args=tuple(expand(f"args.{index}", value) for index, value in enumerate(entry.args)),
            env={name: expand(f"env.{name}", value) for name, value in entry.env.items()},
            cwd=None if entry.cwd is None else expand("cwd", entry.cwd),
            expanded=tuple(
                self.environ[found[1]]
                for each in entry.args
                for found in VARIABLE.finditer(each)
                if found[1] in self.environ
            ),
            sandbox=self._sandbox(entry, expand),
        )

    def _sandbox(self, entry: Entry, expand: Callable[[str, str], str]) -> Sandbox | None:
        try:
            return sandbox(entry.sandbox, expand)
        except ValueError as exc:
            self._refuse(f"sandbox: {exc}")

    def _roots(self, entry: Entry) -> tuple[Root, ...] | None:
        """True is for the folders of sessions alone."""
        match entry.roots:
            case False:
                return None
            case True:
                return ()
            case None if not self.roots:
                return None
        written = self.roots if entry.roots is None else entry.roots
        expand = (lambda _field, value: value) if entry.disabled else self._expand
        pairs = ((each, None) if isinstance(each, str) else (each.path, each.name) for each in written)
        try:
            found = joined([root(expand("roots", path), name) for path, name in pairs])
        except ValueError as exc:
            self._refuse(f"roots: {exc}")
        if len(found) > MOST_ROOTS:
            self._refuse(f"roots: at most {MOST_ROOTS}")
        return found

    def _command(self, entry: Entry) -> HeaderCommand | None:
        given = entry.headers_command if entry.bearer_command is None else entry.bearer_command
        if given is None:
            return None
        try:
            return HeaderCommand(words_of(given), is_bearer=entry.bearer_command is not None)
        except ValueError as exc:
            self._refuse(f"headers_command: {exc}")

    def _oauth(self, entry: Entry, expand: Callable[[str, str], str]) -> OAuthSettings | None:
        """A server that wants no login never asks, so it is ready for one unless the entry says otherwise."""
        if entry.oauth is False:
            return None
        try:
            return (entry.oauth or OAuthEntry()).settings(lambda name, value: expand(f"oauth.{name}", value))
        except ValueError as exc:
            self._refuse(f"oauth.{exc}")

    def _kind(self, entry: Entry) -> HttpKind:
        """How it is spoken to; other programs write it under either name, in several spellings."""
        match entry.type or entry.transport:
            case None:
                return "auto"
            case "stdio":
                self._refuse("type: stdio needs a 'command', not a 'url'")
            case "sse":
                return "sse"
        return "http"

    def _expand(self, field_name: str, value: str) -> str:
        """Replace `${NAME}`, `${env:NAME}` and `${NAME:-default}`, and a leading `~` by the home directory."""

        def replaced(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            if name in self.environ:
                return self.environ[name]
            if default is None:
                self._refuse(f"{field_name}: the environment variable {name} is not set")
            return default

        if value == "~" or value.startswith("~/"):
            value = self.environ.get("HOME", str(Path("~").expanduser())) + value[1:]
        return VARIABLE.sub(replaced, value)

    def _refuse(self, problem: str) -> NoReturn:
        raise ConfigurationError(f"{self.place}: {problem}")


def _rules(entry: Entry) -> Rules:
    """What `tools` says of a tool comes before what `permission` says of all."""
    of_tools = tuple((pattern, each.permission) for pattern, each in entry.tools.items() if each.permission is not None)
    match entry.permission:
        case None:
            return Rules(of_tools)
        case Permission() as everywhere:
            return Rules(of_tools, (("*", everywhere),))
        case by_name:
            return Rules(of_tools, tuple(by_name.items()))


def _first_problem(error: ValidationError) -> str:
    """The first problem in words, without the value: it may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
