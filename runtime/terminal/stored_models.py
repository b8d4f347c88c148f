"""`tenuto models`: what its commands do to the store of this machine, and how they show it."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tenuto.errors import InvalidRequest, ModelLoadFailed
from tenuto.paths import expanded
from tenuto.pipelines.finding import kind_of, model_store
from tenuto.pipelines.model_facts import ModelFacts, read_facts
from tenuto.pipelines.model_store import LocalModel, StoredModel, is_name, is_remote, source_of
from tenuto.pipelines.model_store import pull as pull_
from tenuto.pipelines.model_store import verify as verify_
from tenuto.runtime.terminal.pull_progress import JsonLines, shown_progress
from tenuto.runtime.terminal.report import bytes_text
from tenuto.runtime.terminal.words import print_json, print_table


def pull(source: str, name: str | None, *, as_json: bool) -> None:
    """Fetch a model, and say which version it is."""
    store = model_store()
    stored = store.find(source) if is_name(source) and not Path(source).exists() else None
    if stored is not None:
        source, name = stored.version.source, name or stored.name
    found = source_of(source if is_remote(source) else _path_of(source), store.root)
    if as_json:
        with JsonLines() as lines:
            lines.success(_as_json(pull_(store, found, name, tell=lines)))
        return
    with shown_progress() as progress:
        model = pull_(store, found, name, tell=progress)
    _say(model, "is current")


def import_(path: str, name: str | None, *, links: bool, as_json: bool) -> None:
    """Store a file or folder."""
    with nullcontext(lambda _: None) if as_json else shown_progress() as progress:
        model = pull_(model_store(), LocalModel(Path(_path_of(path)), links=links), name, tell=progress)
    tell(model, "is current", as_json=as_json)


def list_(*, as_json: bool) -> None:
    """All models."""
    store = model_store()
    found = store.available()
    if as_json:
        print_json([_as_json(model) | {"versions": len(store.versions(model.name))} for model in found])
        return
    for name, come in store.unfinished():
        click.echo(
            f"{name}: {bytes_text(come)} of a version that is not whole; `tenuto models pull` goes on with it,"
            " `tenuto models rm` throws it away",
            err=True,
        )
    if found:
        print_table(
            ["name", "version", "kind", "size", "versions", "came"],
            [
                (each.name, each.version.id, each.kind, bytes_text(each.version.bytes), count, _date(each))
                for each in found
                for count in [len(store.versions(each.name))]
            ],
        )
    else:
        click.echo("no models are stored yet; `tenuto models pull` fetches one", err=True)


def show(model: str, *, as_json: bool) -> None:
    """One model, or a file or folder."""
    store, path = model_store(), Path(_path_of(model))
    stored = store.find(model) if not path.exists() and is_name(model.partition("@")[0]) else None
    if stored is None:
        facts: dict[str, Any] = {"path": str(path)} | _facts(read_facts(kind_of(path), path))
    else:
        if gone := stored.missing():
            raise ModelLoadFailed(
                f"{stored.reference} is damaged: {', '.join(gone)} is gone or cut off; `tenuto models pull"
                f" {stored.name}` fetches it again"
            )
        facts = _as_json(stored) | _facts(read_facts(stored.kind, stored.path))
        facts["versions"] = [_as_json(each) for each in store.versions(stored.name)]
    if as_json:
        print_json(facts)
        return
    versions = facts.pop("versions", [])
    facts |= {f"not used: {path}": why for path, why in facts.pop("not_used", {}).items()}
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' ')}: {_in_words(name, value)}")
    for each in versions:
        mark = "*" if each["current"] else " "
        click.echo(f" {mark} {each['version']}  {bytes_text(each['bytes'])}  {each['created']}  {each['source']}")


def verify(names: Sequence[str], *, as_json: bool) -> None:
    """Read files; exit code 1 where one is damaged."""
    store = model_store()
    meant = [store.expect(name) for name in names] or store.available()
    told: list[dict[str, Any]] = []
    for model in meant:
        with nullcontext(lambda _: None) if as_json else shown_progress() as progress:
            damages = verify_(model, progress)
        told.append({"model": model.reference, "damaged": [asdict(damage) for damage in damages]})
        if not as_json:
            for damage in damages:
                click.secho(f"{model.reference}: {damage.path}: {_WORDS[damage.what]}", fg="red")
            click.echo(f"{model.reference}: {_verdict(model, len(damages))}")
    if as_json:
        print_json(told)
    sys.exit(1 if any(each["damaged"] for each in told) else 0)


_WORDS = {
    "missing": "the file is gone",
    "size": "the file has another size",
    "digest": "the file has another content",
    "unreadable": "the file cannot be read",
}


def _verdict(model: StoredModel, damaged: int) -> str:
    if damaged:
        return f"{damaged} of {len(model.version.files)} files are damaged; `tenuto models pull {model.name}` mends it"
    return f"whole, {bytes_text(model.version.bytes)} read"


def rollback(name: str, to: str | None, *, as_json: bool) -> None:
    """Go back to a version."""
    tell(model_store().rollback(name, to), "is current", as_json=as_json)


def remove(names: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Remove models or versions, after a question."""
    store = model_store()
    for name in names:
        if not store.has(name):
            store.expect(name)
    if not yes:
        click.confirm(f"remove {', '.join(names)} from the disk?", abort=True, err=True)
    gone = {name: store.remove(name) for name in names}
    if as_json:
        print_json([_as_json(model) for models in gone.values() for model in models])
        return
    for name, models in gone.items():
        for model in models:
            click.echo(f"removed {model.reference}")
        if not models:
            click.echo(f"removed what there was of {name}")


def _path_of(source: str) -> str:
    try:
        return str(expanded(source))
    except ValueError as error:
        raise InvalidRequest(f"{source}: {error}") from None


def _as_json(model: StoredModel) -> dict[str, Any]:
    version = model.version
    return {
        "name": model.name,
        "version": version.id,
        "current": model.is_current,
        "kind": model.kind,
        "bytes": version.bytes,
        "source": version.source,
        "revision": version.revision,
        "created": _date(model),
        "digest": version.digest,
        "path": str(model.path),
        "projector": None if model.projector is None else str(model.projector),
        "not_used": model.not_used,
    }


def _facts(facts: ModelFacts) -> dict[str, Any]:
    return {
        "architecture": facts.architecture,
        "context": facts.context,
        "quantisation": facts.quantisation,
        "parameters": facts.parameters,
        "chat_template": facts.chat_template is not None,
    }


def _in_words(name: str, value: Any) -> str:
    if name == "bytes":
        return bytes_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value in (None, "", 0) else str(value)


def _date(model: StoredModel) -> str:
    return datetime.fromtimestamp(model.version.created).astimezone().isoformat(" ", "minutes")


def tell(model: StoredModel, what: str, *, as_json: bool) -> None:
    """Say which version something was done to."""
    if as_json:
        print_json(_as_json(model))
    else:
        _say(model, what)


def _say(model: StoredModel, what: str) -> None:
    reads = ", with what reads images" if model.projector else ""
    click.echo(f"{model.reference} {what}: {bytes_text(model.version.bytes)}, {model.kind}{reads}")
    for path, why in model.not_used.items():
        click.echo(f"not used: {path}: {why}", err=True)
