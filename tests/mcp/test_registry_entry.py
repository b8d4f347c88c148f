"""`server.json`, this project's entry in registries of MCP servers: of the form that they take, and true.

The rules are those of the schema of 2025-12-11 and of registry.modelcontextprotocol.io, for what the entry has.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from tenuto import __version__
from tenuto.runtime.cli import cli
from tenuto.runtime.config import ENVIRONMENT_PREFIX, Settings
from tenuto.runtime.mcp.server_base import SHOWN

ROOT = Path(__file__).parents[2]
DATE = "2025-12-11"
_TEXT = {"type": "string", "minLength": 1}
_VERSION = {"type": "string", "maxLength": 255, "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+([-+.a-z0-9]+)?$"}
_VALUE = {"value": _TEXT, "description": _TEXT, "isRequired": {"type": "boolean"}, "isSecret": {"type": "boolean"}}
_FORMAT = {"enum": ["string", "number", "boolean", "filepath"]}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


_ARGUMENTS = {
    "type": "array",
    "items": {
        "oneOf": [
            _object(["type", "value"], type={"const": "positional"}, valueHint=_TEXT, **_VALUE),
            _object(["type", "name"], type={"const": "named"}, name=_TEXT, **_VALUE),
        ]
    },
}
_PACKAGE = _object(
    ["registryType", "identifier", "transport", "version"],
    registryType={"enum": ["npm", "pypi", "oci", "nuget", "mcpb", "maven"]},
    registryBaseUrl={"const": "https://pypi.org"},
    identifier=_TEXT,
    version=_VERSION,
    runtimeHint={"enum": ["npx", "uvx", "docker", "dnx", "jbang"]},
    runtimeArguments=_ARGUMENTS,
    packageArguments=_ARGUMENTS,
    environmentVariables={"type": "array", "items": _object(["name"], name=_TEXT, format=_FORMAT, **_VALUE)},
    transport=_object(["type"], type={"const": "stdio"}),
)
FORM = _object(
    ["$schema", "name", "description", "version", "packages"],
    **{"$schema": {"const": f"https://static.modelcontextprotocol.io/schemas/{DATE}/server.schema.json"}},
    name={"type": "string", "minLength": 3, "maxLength": 200, "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
    title={**_TEXT, "maxLength": 100},
    description={**_TEXT, "maxLength": 100},
    version=_VERSION,
    packages={"type": "array", "minItems": 1, "items": _PACKAGE},
)


@pytest.fixture
def entry() -> Any:
    return json.loads((ROOT / "server.json").read_text())


@pytest.fixture
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_it_has_the_form_that_registries_take(entry: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(FORM)
    jsonschema.Draft202012Validator(FORM).validate(entry)


@pytest.mark.parametrize(
    "wrong",
    [{"name": "tenuto"}, {"description": "x" * 101}, {"version": "latest"}, {"version": "^0.1.0"}, {"packages": []}],
)
def test_what_registries_refuse_has_not_that_form(entry: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(FORM).validate({**entry, **wrong})


def test_it_names_this_project_and_its_version(entry: Any, project: Any) -> None:
    (package,) = entry["packages"]
    assert {entry["version"], package["version"], project["version"]} == {__version__}
    assert (entry["name"].rpartition("/")[2], package["identifier"]) == (project["name"], project["name"])
    assert (entry["title"], entry["description"]) == (SHOWN["title"], SHOWN["description"])


def test_the_package_that_is_published_names_it(entry: Any, project: Any) -> None:
    """Registries take an entry for a package of PyPI if the package's own page names the entry."""
    assert f"mcp-name: {entry['name']}" in (ROOT / project["readme"]).read_text()


def test_it_starts_the_command_that_speaks_mcp_on_stdio(entry: Any, project: Any) -> None:
    (package,) = entry["packages"]
    (more,) = package["runtimeArguments"]
    assert package["identifier"] in project["scripts"]
    assert more["value"] == f"{project['name']}[llama]=={project['version']}"
    assert "llama" in project["optional-dependencies"]
    words = [each["value"] for each in package["packageArguments"]]
    command = cli.get_command(click.Context(cli), words[0])
    assert isinstance(command, click.Group)
    assert (words, command.invoke_without_command) == (["mcp"], True)


def test_its_variables_are_settings(entry: Any) -> None:
    told = {each["name"]: each["description"] for each in entry["packages"][0]["environmentVariables"]}
    settings = {
        f"{ENVIRONMENT_PREFIX}{name.upper()}": field.description for name, field in Settings.model_fields.items()
    }
    assert told == {name: settings[name] for name in told}
