"""What `tenuto models` makes of models: a quantisation or a conversion, stored as the version of a name."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.finding import NO_MLX, Source, has_mlx, located, model_store
from tenuto.pipelines.model_store import LocalModel, pull
from tenuto.pipelines.remaking import remake
from tenuto.runtime.terminal.pull_progress import shown_steps
from tenuto.runtime.terminal.stored_models import tell

_QUANTISE, _CONVERT = "tenuto.pipelines.llama_cpp.quantise", "tenuto.pipelines.mlx.convert"


def quantize(model: str, kind: str, name: str | None, *, requantises: bool, as_json: bool) -> None:
    """Make a quantisation of a GGUF model."""
    source = _source(model, "gguf")
    kind = kind.upper()
    with _place() as folder:
        made = folder / f"{source.path.stem}-{kind}.gguf"
        threads = str(os.cpu_count() or 1)
        with nullcontext(_silent) if as_json else shown_steps(f"quantising as {kind}") as told:
            remake(_QUANTISE, [str(source.path), str(made), kind, threads, "1" if requantises else "0"], told)
        _store(made, name or _named(source, kind), as_json=as_json)


def convert(model: str, bits: int, name: str | None, *, as_json: bool) -> None:
    """Make an MLX model of a folder of safetensors."""
    if not has_mlx():
        raise ModelLoadFailed(NO_MLX)
    source = _source(model, "mlx")
    with _place() as folder:
        made = folder / source.path.name
        with nullcontext(_silent) if as_json else shown_steps("converting") as told:
            remake(_CONVERT, [str(source.path), str(made), str(bits)], told)
        _store(made, name or _named(source, f"{bits}bit" if bits else "mlx"), as_json=as_json)


def _named(source: Source, tag: str) -> str:
    """The name of the model that it was made of, with another tag."""
    return f"{source.id.partition('@')[0].partition(':')[0]}:{tag}"


def _silent(done: int, total: int) -> None:
    del done, total


def _source(model: str, kind: str) -> Source:
    source = located(model, None)
    if source.kind != kind:
        what = "a GGUF file" if kind == "gguf" else "a folder of safetensors"
        raise ModelLoadFailed(f"{model} is not {what}")
    return source


@contextmanager
def _place() -> Iterator[Path]:
    """A folder on the disk of the store, for as long as the block lasts."""
    making = model_store().root / "store" / "making"
    making.mkdir(parents=True, exist_ok=True)
    folder = making / uuid.uuid4().hex
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _store(made: Path, name: str, *, as_json: bool) -> None:
    stored = pull(model_store(), LocalModel(made), name)
    tell(stored, "is current", as_json=as_json)
    if not as_json:
        click.echo(f"serve it with: tenuto serve --model {stored.name}", err=True)
