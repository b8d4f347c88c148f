"""`tenuto doctor`: looks at everything, tells what it sees, and what to do where something is wrong."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio

from tenuto.errors import TenutoError
from tenuto.pipelines.finding import is_embedded, model_id
from tenuto.runtime.adapted_models import Adapters
from tenuto.runtime.config import Settings
from tenuto.runtime.terminal import machine, mcp_checks, model_checks
from tenuto.runtime.terminal.client import Refused, Remote
from tenuto.runtime.terminal.report import Section, as_json, print_section, print_verdict
from tenuto.runtime.terminal.words import print_json

_STUCK = "restart it: tenuto serve keeps every session"


def run(settings: Settings, *, models: tuple[str, ...], mcp_config: Path | None, json: bool) -> int:
    """The whole command; its exit code. `models` and `mcp_config` are those that were named for the doctor alone."""
    # What would be logged is told here, in its place.
    logging.getLogger("tenuto").setLevel(logging.CRITICAL)
    sections = []
    for section in examine(settings, models, mcp_config):
        sections.append(section)
        if not json:
            print_section(section)
    if json:
        print_json(as_json(sections))
    else:
        print_verdict(sections)
    return int(any(section.broken for section in sections))


def examine(settings: Settings, models: tuple[str, ...], mcp_config: Path | None) -> Iterator[Section]:
    """One section after the other, as they are found out. No server is started."""
    yield machine.installed()
    folder, owner = machine.data_folder(settings.data_dir)
    yield folder
    remote = None
    if owner is not None and owner.url is not None:
        remote = Remote(None, owner.url, owner.secret)
        section = _server(remote)
        yield section
        if section.broken:
            remote.close()
            remote = None
    try:
        yield from _models(settings, models, remote)
        yield from _mcp_servers(settings, mcp_config, remote)
    finally:
        if remote is not None:
            remote.close()


def _server(remote: Remote) -> Section:
    section = Section("server", {"url": remote.url})
    for path in ("/health", "/ready"):
        try:
            section.facts[path] = remote.get(path)["status"]
        except Refused as exc:
            section.facts[path] = f"{exc.status}"
            section.wrong(f"{path} answers {exc.status}: {exc}", _STUCK)
        except TenutoError as exc:
            section.wrong(str(exc), _STUCK)
    return section


def _models(settings: Settings, models: tuple[str, ...], remote: Remote | None) -> Iterator[Section]:
    """Those named, else those of the server, else those that it would load; and how fast this machine is."""
    if remote is not None and not models:
        yield from model_checks.served(remote)
    names = models or (() if remote is not None else settings.model)
    known = Adapters(dict(settings.lora))
    for number, name in enumerate(names):
        source, adapter = known.split(name)
        fitting = model_checks.fitted(settings, is_first=not number, adapter=adapter)
        title = f"{model_id(source)}+{adapter}" if adapter else ""
        yield anyio.run(partial(model_checks.loaded, source, fitting, title))
    yield from model_checks.adapters(settings, names) if names else ()
    if not any(map(is_embedded, names)):
        yield anyio.run(model_checks.speed)


def _mcp_servers(settings: Settings, mcp_config: Path | None, remote: Remote | None) -> Iterator[Section]:
    """Those of a file that was named, else those of the server, else those that it would start."""
    found = mcp_checks.served(remote) if remote is not None and mcp_config is None else None
    path = mcp_config or settings.mcp_config
    if found is None and path is not None:
        found = anyio.run(mcp_checks.connected, path, settings.data_dir)
    yield from found or [Section("MCP servers", {"configured": "none; --mcp-config FILE adds some"})]
