"""The commands that README and the pages tell people to type are ones that there are."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tenuto.runtime.cli import cli
from tenuto.runtime.config import Settings, flag

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "train_embedded_model" / "README.md",
]
_COMMAND = re.compile(r"^(?:[^#\n]*\| )?((?:tenuto|make|python -m) [^#\n]*?)(?:   .*)?(?: +#.*)?$", re.MULTILINE)


def commands() -> Iterator[tuple[str, str]]:
    """Those in blocks, fenced and indented, and those in running text, each with its page."""
    for page in PAGES:
        text = page.read_text()
        fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        blocks = [block for language, block in fenced if language in ("", "sh")]
        blocks += re.findall(r"^    (.*)$", text, re.MULTILINE)
        told = [command for block in blocks for command in _COMMAND.findall(block)]
        told += re.findall(r"`((?:tenuto|make|python -m) [^`\n]+)`", text)
        name = str(page.relative_to(ROOT))
        yield from ((name, command.strip()) for command in told if not command.startswith("tenuto ready"))


def click_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first of the words name, and the rest of them."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_a_command_of_the_docs_is_one_that_there_is(page: str, command: str) -> None:
    first, *words = shlex.split(command)
    match first:
        case "make":
            targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert {word for word in words if "=" not in word} <= targets
            given = [word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=")]
            if words[0] == "serve" and given:
                click_command(["serve"])[0].make_context("serve", shlex.split(given[0]))
        case "python":
            place = ROOT.joinpath(*words[1].split("."))
            assert (
                place.with_suffix(".py").exists()
                or (ROOT / "examples" / place.relative_to(ROOT)).with_suffix(".py").exists()
            )
        case "tenuto":
            called, rest = click_command(words)
            if "|" not in command and rest not in ([], ["--help"]) and not isinstance(called, click.Group):
                called.make_context(called.name, rest)


def test_the_docs_are_looked_through() -> None:
    told = {command for _, command in commands()}
    assert {"make serve", "make demo", "tenuto chat --session trip", "tenuto serve --help"} <= told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_of_the_docs_is_one_that_there_is(page: Path) -> None:
    text = re.sub(r"ARGS=\"[^\"]*\"|`bench/[^`]*`|^ .*$", "", page.read_text(), flags=re.MULTILINE)
    told = set(re.findall(r"`(--[a-z][a-z-]+)", text)) | set(re.findall(r"`(TENUTO_[A-Z_]+)`", text))
    own = {option for command in _all(cli) for parameter in command.params for option in parameter.opts}
    own |= {str(parameter.envvar) for command in _all(cli) for parameter in command.params}
    own |= {flag(name) for name in Settings.model_fields} | {f"TENUTO_{name.upper()}" for name in Settings.model_fields}
    assert told - own - {"--ranks", "--workers", "--device"} == set()


def _all(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _all(found)
