"""`tenuto ps`, `load` and `unload`: which models the running server has in memory. They start no server."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import click

from tenuto.runtime.terminal.commands import EXIT_CODES, JSON_OPTION, must_run, remote_of, with_server

LOAD_S = 3600.0
"""How long a load may take: a large model may have to be fetched first."""


@click.command(epilog=EXIT_CODES)
@click.option("--all", "everything", is_flag=True, help="Include models that are not loaded.")
@JSON_OPTION
@with_server
def ps(everything: bool, as_json: bool, **given: Any) -> None:
    """List the models that the running server has loaded: how large they are, and who uses them."""
    must_run(given)
    with remote_of(given) as remote:
        found = [one for one in remote.get("/v1/models")["data"] if everything or one["state"] != "available"]
    if as_json:
        _print_json(found)
    elif found:
        from tenuto.runtime.terminal.words import print_table

        print_table(("model", "state", "size", "in use", "last used", "kept"), [_row(one) for one in found])
    else:
        click.echo("no model is loaded; a request for one loads it, and so does `tenuto load NAME`", err=True)


@click.command(
    epilog="""\b
Examples:
  tenuto load small                         load it now
  tenuto load small --pin                   and never unload it by itself
  tenuto load small --swap ./small-v2.gguf  replace it by another file; requests go on

"""
    + EXIT_CODES
)
@click.argument("name")
@click.argument("source", required=False)
@click.option("--swap", is_flag=True, help="Load it anew, from SOURCE if that is given, and replace the one loaded.")
@click.option("--pin/--unpin", default=None, help="Whether it is never unloaded by itself from now on.")
@click.option(
    "--keep-loaded-s", type=click.FloatRange(min=0), metavar="SECONDS", help="How long it stays loaded without use."
)
@JSON_OPTION
@with_server
def load(
    name: str,
    source: str | None,
    swap: bool,
    pin: bool | None,
    keep_loaded_s: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Load a model in the running server; with --swap, replace it by a new version."""
    options = {"swap": swap or None, "source": source, "pin": pin, "keep_loaded_s": keep_loaded_s}
    must_run(given)
    with remote_of(given) as remote:
        body = {name: value for name, value in options.items() if value is not None}
        model = remote.post(f"{_path(name)}/load", body, timeout_s=LOAD_S)
    _tell(model, as_json=as_json)


@click.command(epilog=EXIT_CODES)
@click.argument("name")
@JSON_OPTION
@with_server
def unload(name: str, as_json: bool, **given: Any) -> None:
    """Unload a model in the running server, as soon as nobody uses it. The next request for it loads it again."""
    must_run(given)
    with remote_of(given) as remote:
        model = remote.post(f"{_path(name)}/unload")
    _tell(model, as_json=as_json)


def _path(name: str) -> str:
    return f"/v1/models/{quote(name, safe='/')}"


def _tell(model: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print_json(model)
    else:
        from tenuto.runtime.terminal.report import bytes_text

        size = f", {bytes_text(model['bytes'])}" if model["bytes"] else ""
        click.echo(f"{model['id']}: {model['state']}{size}")


def _row(model: Mapping[str, Any]) -> tuple[Any, ...]:
    from tenuto.runtime.terminal.report import bytes_text

    used = model.get("last_used")
    keeps = model.get("keep_loaded_s")
    return (
        model["id"],
        model["state"] + (f": {model['doing']}" if model.get("doing") else ""),
        bytes_text(model["bytes"]),
        model["in_use"],
        "" if used is None else datetime.fromtimestamp(used).strftime("%H:%M:%S"),
        "pinned" if model["pinned"] else "" if keeps is None else f"{keeps:g} s",
    )


def _print_json(value: Any) -> None:
    from tenuto.runtime.terminal.words import print_json

    print_json(value)
