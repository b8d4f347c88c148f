"""An import from its beginning to its end: what is read, what becomes of it, and what is said."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from tenuto.errors import TenutoError
from tenuto.runtime.config import Settings, flag, load
from tenuto.runtime.terminal.mcp_import.bundle import SUFFIXES, Bundle, bundle
from tenuto.runtime.terminal.mcp_import.imported import imported
from tenuto.runtime.terminal.mcp_import.sources import of_client, of_file
from tenuto.runtime.terminal.mcp_import.target import Plan, planned

DEFAULT = "mcp.json"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user has asked for: `client`, `source` or both. `settings` are flags by the names of settings."""

    client: str | None
    source: Path | None
    target: Path | None
    replaces: bool
    is_shown: bool
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, in lines. `shown` is what would be added; `is_whole`: no server had to be left out."""

    told: Sequence[str]
    shown: str
    is_whole: bool


def run(request: Request, home: Path, folder: Path, environ: Mapping[str, str]) -> Done:
    """Do it.

    Raises:
        ConfigurationError: a file cannot be read, or not be written; nothing is changed then.
    """
    settings = load(request.settings)
    path = request.target or settings.mcp_config or Path(DEFAULT)
    with ExitStack() as stack:
        packed = _bundle(request, settings, stack)
        if packed is not None:
            found = [packed.source(home)]
        elif request.source is not None:
            found = of_file(request.source, request.client)
        else:
            assert request.client is not None
            found = of_client(request.client, home, folder, environ)
        servers = imported(found, environ)
        plan = planned(path, servers, replaces=request.replaces)
        is_whole = all(each.entry is not None or each.is_us for each in servers)
        if request.is_shown:
            return Done(plan.told, plan.shown(environ), is_whole)
        done = [*_unpacked(plan, packed, environ)] if packed is not None else plan.write(environ)
    if done and path != settings.mcp_config:
        done.append(f"To use them: tenuto serve {flag('mcp_config')} {path}")
    return Done([*plan.told, *done], "", is_whole)


def _bundle(request: Request, settings: Settings, stack: ExitStack) -> Bundle | None:
    if request.source is None or request.source.suffix not in SUFFIXES:
        return None
    if request.client is not None:
        raise click.UsageError(f"{request.source} is a bundle, and of no client: leave out {request.client}")
    return stack.enter_context(bundle(request.source, settings.data_dir))


def _unpacked(plan: Plan, packed: Bundle, environ: Mapping[str, str]) -> list[str]:
    """The program is there before the file names it, and does not stay where the file does not."""
    if not (plan.entries or plan.same):
        return []
    is_new = packed.unpack()
    try:
        written = plan.write(environ)
    except TenutoError:
        if is_new:
            packed.remove()
        raise
    return [*([f"Unpacked it into {packed.folder}."] if is_new else []), *written]
