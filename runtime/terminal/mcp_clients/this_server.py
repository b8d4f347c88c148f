"""This server as an MCP client is told of it: a program to start from anywhere, or an address and its key's variable."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tenuto.errors import ConfigurationError, ServerUnreachable
from tenuto.paths import expanded
from tenuto.runtime.config import CONFIG, FILE_NAME, Settings, command_line, flag, load, variable
from tenuto.runtime.data_folder.ownership import read_owner
from tenuto.runtime.terminal.mcp_clients.client import Address, Program

KEY = "TENUTO_CLIENT_KEY"
ANSWER_S = 10.0


def program(flags: Mapping[str, Any]) -> Program:
    """`tenuto mcp` with these settings, as it is started in whatever folder and environment.

    Raises:
        ConfigurationError: a setting is wrong, or is a secret.
    """
    load(flags)
    for name in flags:
        if not Settings.model_fields[name].repr:
            raise ConfigurationError(
                f"{flag(name)} would stand in the client's file: put it into {FILE_NAME} and give that by --config"
            )
    given = {name: _absolute(name, value) for name, value in flags.items()}
    if CONFIG not in given and Path(FILE_NAME).is_file():
        given[CONFIG] = str(Path(FILE_NAME).absolute())
    elsewhere = os.environ.get(variable("data_dir"))
    if "data_dir" not in given and elsewhere:
        given["data_dir"] = _absolute("data_dir", elsewhere)
    script = Path(sys.executable).with_name("tenuto.exe" if os.name == "nt" else "tenuto")
    # -P: a folder of the user's own called tenuto must not stand in for us.
    words = [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "tenuto"]
    return Program(words[0], (*words[1:], "mcp", *command_line(given)))


def address(url: str | None, flags: Mapping[str, Any]) -> Address:
    """Where the server is reached: at this URL, or where the owner of the data folder is.

    Raises:
        ConfigurationError: the URL cannot be told to others.
        ServerUnreachable: no server is there.
    """
    if url is None:
        owner = read_owner(load(flags).data_dir)
        if owner is None or owner.url is None:
            raise ServerUnreachable("no server is running; start one with tenuto serve, or name another by --url")
        url = owner.url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("--url: give a URL that begins with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("--url: give it without user, password, query and fragment: others will read it")
    endpoint = url.rstrip("/").removesuffix("/mcp") + "/mcp"
    return Address(endpoint, KEY if _wants_key(endpoint) else None)


def _wants_key(endpoint: str) -> bool:
    """Whether a key has to be sent along. Where there is an authorization server, clients find it by themselves."""
    try:
        answer = httpx2.post(endpoint, json={}, timeout=ANSWER_S)
    except httpx2.HTTPError as exc:
        raise ServerUnreachable(f"no server answers at {endpoint}: {exc or type(exc).__name__}") from exc
    if answer.status_code == 404:
        raise ServerUnreachable(f"there is no MCP server at {endpoint}")
    return answer.status_code == 401 and "resource_metadata=" not in answer.headers.get("WWW-Authenticate", "")


def _absolute(name: str, value: Any) -> Any:
    """A setting's value, with the paths in it as they are from every folder."""
    if name == "model":
        return tuple(_model(each) for each in _several(value))
    if name == "lora":
        return tuple(_adapter(each) for each in _several(value))
    return _path(value) if "Path" in str(Settings.model_fields[name].annotation) else value


def _several(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _model(word: str) -> str:
    if word.startswith("scripted:"):
        return f"scripted:{_path(word.removeprefix('scripted:'))}"
    return _path(word) if Path(word).exists() or word.startswith("~") else word


def _adapter(word: str) -> str:
    name, _, path = word.partition("=")
    before, at, scale = path.rpartition("@")
    return f"{name}={_path(path)}" if not at or Path(path).exists() else f"{name}={_path(before)}@{scale}"


def _path(value: str) -> str:
    try:
        return str(expanded(value).absolute())
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from exc
