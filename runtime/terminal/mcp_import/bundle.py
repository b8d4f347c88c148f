"""An MCP bundle (.mcpb): a server's program in a zip file, with a manifest that says how it is started.

https://github.com/modelcontextprotocol/mcpb/blob/main/MANIFEST.md
"""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from tenuto.runtime.terminal.config_files import jsonc
from tenuto.runtime.terminal.mcp_import.archive import Archive, archive, refused
from tenuto.runtime.terminal.mcp_import.references import NoCounterpart, Reading
from tenuto.runtime.terminal.mcp_import.sources import Form, Source
from tenuto.tools.mcp_config import VARIABLE
from tenuto.tools.names import sanitised

SUFFIXES = (".mcpb", ".dxt")
FOLDER = "mcp-bundles"
"""In the data folder: a folder for each bundle, by its name and its bytes. None changes under a running server."""
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 1 << 20
_CONFIG = "user_config."
_PLACES = {name: f"${{HOME}}/{name.capitalize()}" for name in ("DESKTOP", "DOCUMENTS", "DOWNLOADS")}


class _Asked(BaseModel):
    """What a person is asked for."""

    required: bool = False
    sensitive: bool = False
    default: str | bool | int | float | list[str] | None = None


class _Program(BaseModel):
    command: str | None = Field(None, min_length=1)
    args: list[str] | None = None
    env: dict[str, str] = {}


class _Started(_Program):
    platform_overrides: dict[str, _Program] = {}


class _Server(BaseModel):
    type: Literal["node", "python", "binary", "uv"]
    entry_point: str
    mcp_config: _Started | None = None


class _Compatibility(BaseModel):
    platforms: list[str] | None = None


class Manifest(BaseModel):
    """What counts here of a manifest."""

    name: str = Field(min_length=1)
    server: _Server
    user_config: dict[str, _Asked] = {}
    compatibility: _Compatibility = _Compatibility()


@dataclass(frozen=True, slots=True)
class Bundle:
    """One that is open. `folder` is where it is unpacked, or would be."""

    path: Path
    folder: Path
    manifest: Manifest = field(repr=False)
    archive: Archive

    def source(self, home: Path) -> Source:
        """Its server."""
        form = Form(
            "", partial(_entry, self.manifest, self.folder), partial(_resolved, self.manifest, self.folder, home)
        )
        return Source(self.path, form, {self.manifest.name: {}})

    def unpack(self) -> bool:
        """Unpack it, unless that was done before; whether it was done now. Raises ConfigurationError."""
        if self.folder.is_dir():
            return False
        server = self.manifest.server
        started = (str(PurePosixPath(server.entry_point)),) if server.type == "binary" else ()
        self.archive.unpack(self.folder, started)
        return True

    def remove(self) -> None:
        """Take away what was unpacked."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def bundle(path: Path, data_dir: Path) -> Iterator[Bundle]:
    """Open a bundle.

    Raises:
        ConfigurationError: it cannot be read, or is none; the text says what is wrong with it.
    """
    with archive(path) as found:
        manifest = _manifest(path, found)
        name = f"{sanitised(manifest.name)[:48]}-{found.digest[:16]}"
        yield Bundle(path, data_dir.absolute() / FOLDER / name, manifest, found)


def _manifest(path: Path, found: Archive) -> Manifest:
    data = found.read(MANIFEST, MOST_MANIFEST_BYTES)
    if data is None:
        raise refused(path, f"it has no {MANIFEST}")
    try:
        return Manifest.model_validate(jsonc.read(data.decode("utf-8")))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise refused(path, f"{MANIFEST}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except ValueError as exc:
        raise refused(path, f"{MANIFEST}: {exc}") from None


def _entry(manifest: Manifest, folder: Path, _: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """How it is started. Paths in it are below its folder, so it is started there."""
    server, platforms = manifest.server, manifest.compatibility.platforms
    if platforms is not None and sys.platform not in platforms:
        raise NoCounterpart(f"it is not for this platform, but for {', '.join(platforms)}")
    started = server.mcp_config or _Started()
    own = started.platform_overrides.get(sys.platform, _Program())
    command, args = own.command or started.command, started.args if own.args is None else own.args
    if command is None and server.type == "uv":
        command, args = "uv", ["run", "--directory", "${__dirname}", server.entry_point]
    if command is None:
        raise NoCounterpart(f"its {MANIFEST} does not say how it is started")
    entry: dict[str, Any] = {
        "command": _command(reading.text("command", command), folder),
        "args": reading.texts("args", [word for each in args or () for word in _words(manifest, each)]),
        "env": reading.named_texts("env", {**started.env, **own.env}),
        "cwd": str(folder),
    }
    return {name: value for name, value in entry.items() if value}


def _command(command: str, folder: Path) -> str:
    if command == "python" and shutil.which("python") is None:
        return "python3"
    return str(folder / command) if "/" in command and not command.startswith(("/", "$")) else command


def _words(manifest: Manifest, word: str) -> list[str]:
    """An argument, or all those that it stands for: where several things are asked for, each is one of its own."""
    found = re.fullmatch(r"\$\{user_config\.([^}]*)\}", word)
    asked = manifest.user_config.get(found[1]) if found else None
    return asked.default if asked is not None and isinstance(asked.default, list) else [word]


def _resolved(manifest: Manifest, folder: Path, home: Path, inside: str, reading: Reading) -> str | None:
    """What stands for `${inside}` here: what a person would be asked for is a variable of the environment."""
    if inside.startswith(_CONFIG):
        return _asked(manifest, folder, inside.removeprefix(_CONFIG), home, reading)
    match inside:
        case "__dirname":
            return str(folder)
        case "pathSeparator" | "/":
            return "/"
        case _ if inside in _PLACES:
            return _PLACES[inside]
    return f"${{{inside}}}" if VARIABLE.fullmatch(f"${{{inside}}}") else None


def _asked(manifest: Manifest, folder: Path, key: str, home: Path, reading: Reading) -> str | None:
    asked = manifest.user_config.get(key)
    variable = re.sub(r"[^A-Z0-9]+", "_", f"{manifest.name}_{key}".upper()).strip("_")
    variable = f"_{variable}" if variable[:1].isdigit() else variable
    if asked is None or not variable or reading.asked.setdefault(variable, key) != key:
        return None
    if asked.default is None or asked.sensitive:
        return f"${{{variable}}}" if asked.required else f"${{{variable}:-}}"
    default = _default(asked.default)
    for place, path in {**_PLACES, "HOME": "${HOME}", "__dirname": str(folder)}.items():
        default = default.replace(f"${{{place}}}", path.replace("${HOME}", str(home)))
    return None if "}" in default else f"${{{variable}:-{default}}}"


def _default(value: str | bool | int | float | list[str]) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return ",".join(value)
    return str(value)
