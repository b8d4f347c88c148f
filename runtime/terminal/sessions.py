"""`tenuto sessions`: list, show, export, import, fork and delete, over HTTP."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import click

from tenuto.errors import InvalidRequest
from tenuto.runtime.terminal.client import Remote, session_path
from tenuto.runtime.terminal.display import Display
from tenuto.runtime.terminal.words import print_json, print_table


def print_sessions(remote: Remote, *, implicit: bool, as_json: bool = False) -> None:
    """List sessions, most recently used first."""
    found = [*remote.sessions(implicit=implicit)]
    if as_json:
        print_json(found)
    elif found:
        print_table(("name", "items", "last used", "state"), [_row(each) for each in found])
    else:
        click.echo("there are no sessions yet; `tenuto chat` begins one", err=True)


def show(remote: Remote, name: str, *, as_json: bool) -> None:
    """What a session holds."""
    document = remote.get(session_path(name))
    if as_json:
        print_json({"id": document["id"], "items": document["items"]})
        return
    display = Display(interactive=True)
    for item in document["items"]:
        display.item(item)


def export(remote: Remote, name: str, file: TextIO) -> None:
    """The document that import reads; ids of tokens and all."""
    json.dump(remote.get(session_path(name)), file, ensure_ascii=False)
    file.write("\n")


def import_(remote: Remote, text: str, name: str | None, source: str, *, as_json: bool) -> None:
    """Make a session of a document, under its own name or another."""
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise InvalidRequest(f"{source} is not JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise InvalidRequest(f"{source} is not an exported session: it is not a JSON object")
    target = name or document.get("id")
    if not isinstance(target, str) or not target:
        raise InvalidRequest(f"{source} has no session id; give one with --as NAME")
    imported = remote.put(session_path(target), document)
    _say(imported, "imported", as_json=as_json)
    for one in imported["dropped_ledgers"]:
        kept = f"for the first {one['kept_items']} items only" if one["kept_items"] else "not at all"
        click.echo(f"tokens {one['fingerprint'][:8]} imported {kept}: {one['reason']}", err=True)


def fork(remote: Remote, name: str, new_name: str | None, at: int | None, *, as_json: bool) -> None:
    """A new session with the first items of another."""
    body = {key: value for key, value in (("session_id", new_name), ("at", at)) if value is not None}
    _say(remote.post(f"{session_path(name)}/fork", body), f"forked from {name}", as_json=as_json)


def delete(remote: Remote, names: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Forget sessions, after a question."""
    if not yes:
        click.confirm(f"delete {', '.join(names)} permanently?", abort=True, err=True)
    gone = [remote.delete(session_path(name)) for name in names]
    if as_json:
        print_json(gone)
    else:
        click.echo("\n".join(f"deleted {each['id']}" for each in gone))


def read_document(path: str) -> str:
    """A file's text, or stdin's for `-`."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidRequest(f"{path} cannot be read: {exc}") from exc


def _say(session: Mapping[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(session)
    else:
        click.echo(f"{session['id']}: {what}, {session['num_items']} items")


def _row(session: Mapping[str, Any]) -> tuple[Any, ...]:
    used = datetime.fromtimestamp(session["updated_at"]).strftime("%Y-%m-%d %H:%M")
    state = "open" if session["open_run"] else "implicit" if session["implicit"] else ""
    return session["id"], session["num_items"], used, state
