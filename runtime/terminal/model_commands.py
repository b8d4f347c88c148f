"""The commands `tenuto models` as click has them: options and help. What they do is in `stored_models`."""

import click

from tenuto.runtime.terminal.commands import EXIT_CODES

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
_AS = click.option("--as", "name", metavar="NAME", help="What to call it; default: a name made from the source.")


@click.group(
    epilog="""\b
Examples:
  tenuto models pull hf:Qwen/Qwen3-4B-GGUF:Q4_K_M
  tenuto models pull ollama:qwen3:4b
  tenuto models pull https://example.org/model.gguf#sha256=...
  tenuto models import ./model.gguf --as mine
  tenuto serve --model mine

"""
    + EXIT_CODES
)
def models() -> None:
    """Pull, list, show, verify, roll back and remove the models that are stored on this machine.

    A model has versions. One of them is current: the one that its name means. NAME@VERSION means another, where VERSION
    is the beginning of its id. No server is needed or asked.
    """


@models.command()
@click.argument("source")
@_AS
@click.option("--json", "as_json", is_flag=True, help="Print the progress as lines of JSON.")
def pull(source: str, name: str | None, as_json: bool) -> None:
    """Fetch a model, or the newest version of a stored one.

    SOURCE is hf:OWNER/REPO[:QUANT], ollama:[HOST/][NAMESPACE/]MODEL[:TAG], the URL of a GGUF file (which may end in
    #sha256=HEX) or of a mirror's version.json, a file, a folder, or the name of a stored model. A pull that broke off
    goes on where it was.
    """
    from tenuto.runtime.terminal.stored_models import pull as run

    run(source, name, as_json=as_json)


@models.command("import")
@click.argument("path")
@_AS
@click.option("--copy", is_flag=True, help="Copy the files, where else they would get a second name on the same disk.")
@_JSON
def import_(path: str, name: str | None, copy: bool, as_json: bool) -> None:
    """Store a GGUF file, or the folder of an MLX model, as the new version of a model."""
    from tenuto.runtime.terminal.stored_models import import_ as run

    run(path, name, links=not copy, as_json=as_json)


@models.command("list")
@_JSON
def list_(as_json: bool) -> None:
    """List the stored models."""
    from tenuto.runtime.terminal.stored_models import list_ as run

    run(as_json=as_json)


@models.command()
@click.argument("model")
@_JSON
def show(model: str, as_json: bool) -> None:
    """Show what a stored model is, and its versions. MODEL may also be a file or folder."""
    from tenuto.runtime.terminal.stored_models import show as run

    run(model, as_json=as_json)


@models.command()
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@_JSON
def verify(names: tuple[str, ...], as_json: bool) -> None:
    """Read the files of models, or of all, and hold them to the digests with which they came."""
    from tenuto.runtime.terminal.stored_models import verify as run

    run(names, as_json=as_json)


@models.command()
@click.argument("name")
@click.option("--to", metavar="VERSION", help="The version to go to; default: the one before the current one.")
@_JSON
def rollback(name: str, to: str | None, as_json: bool) -> None:
    """Make the version before the current one current again."""
    from tenuto.runtime.terminal.stored_models import rollback as run

    run(name, to, as_json=as_json)


@models.command()
@click.argument("names", metavar="MODEL...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@_JSON
def rm(names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove models, or single versions of them, as NAME@VERSION. What is loaded somewhere is not removed."""
    from tenuto.runtime.terminal.stored_models import remove as run

    run(names, yes=yes, as_json=as_json)


@models.command()
@click.argument("model")
@click.argument("kind", metavar="TYPE")
@_AS
@click.option("--requantize", is_flag=True, help="Allow a model that is quantised already, at a loss.")
@_JSON
def quantize(model: str, kind: str, name: str | None, requantize: bool, as_json: bool) -> None:
    """Make a smaller GGUF model by llama.cpp, and store it.

    MODEL is whatever --model takes; TYPE is a quantisation as Q4_K_M or Q8_0. It is stored as NAME:TYPE.
    """
    from tenuto.runtime.terminal.made_models import quantize as run

    run(model, kind, name, requantises=requantize, as_json=as_json)


@models.command()
@click.argument("model")
@click.option(
    "--bits",
    type=click.Choice(["0", "2", "3", "4", "5", "6", "8"]),
    default="4",
    show_default=True,
    help="Bits of each weight; 0 leaves them as they are.",
)
@_AS
@_JSON
def convert(model: str, bits: str, name: str | None, as_json: bool) -> None:
    """Make an MLX model of a folder of safetensors by mlx-lm, and store it.

    MODEL is a folder, hf:OWNER/REPO:mlx or the name of a stored one. It is stored as NAME:4bit, by the number of bits.
    """
    from tenuto.runtime.terminal.made_models import convert as run

    run(model, int(bits), name, as_json=as_json)
