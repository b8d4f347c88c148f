"""This version's entry in a registry of MCP servers: `server.json`, as registry.modelcontextprotocol.io takes it."""

import re
from typing import Any
from urllib.parse import urlsplit

from tenuto import __version__
from tenuto.errors import ConfigurationError
from tenuto.runtime.config import Settings, variable

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
DESCRIPTION = "Local models as agents: durable sessions, tools and approvals over MCP."
_NAME = re.compile(
    r"(?=.{3,200}\Z)[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?/[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?"
)
_SHOWN = ("model", "mcp_config", "data_dir")
"""The settings that a person who installs it is asked for; all others have their variables too."""


def registry_entry(name: str, url: str | None = None) -> dict[str, Any]:
    """The entry under a publisher's name; `url` is the public address of a server that is to be in it.

    Raises:
        ConfigurationError: the name is not one that registries take, or the URL is not one that all can reach.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not a name in a registry: give your namespace and the server's name, as in"
            " io.github.OWNER/tenuto or org.example/tenuto"
        )
    made: dict[str, Any] = {
        "$schema": SCHEMA,
        "name": name,
        "title": "Tenuto",
        "description": DESCRIPTION,
        "version": __version__,
        "packages": [_package()],
    }
    if url is not None:
        made["remotes"] = [_remote(url)]
    return made


def _package() -> dict[str, Any]:
    return {
        "registryType": "pypi",
        "registryBaseUrl": "https://pypi.org",
        "identifier": "tenuto",
        "version": __version__,
        "runtimeHint": "uvx",
        # The models that it starts with by itself are in GGUF, which an extra of the package reads.
        "runtimeArguments": [{"type": "named", "name": "--with", "value": f"tenuto[llama]=={__version__}"}],
        "packageArguments": [{"type": "positional", "value": "mcp"}],
        "environmentVariables": [_variable(name) for name in _SHOWN],
        "transport": {"type": "stdio"},
    }


def _variable(name: str) -> dict[str, Any]:
    described = {"name": variable(name), "description": Settings.model_fields[name].description or ""}
    return {**described, "isRequired": False, "format": "string" if name == "model" else "filepath"}


def _remote(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("--url: give the https URL by which everybody reaches the server, without a query")
    key = {"description": "A key of the server.", "isRequired": True, "isSecret": True}
    header = {"name": "Authorization", "value": "Bearer {key}", "isSecret": True, "variables": {"key": key}}
    endpoint = url.rstrip("/").removesuffix("/mcp") + "/mcp"
    return {"type": "streamable-http", "url": endpoint, "headers": [header]}
