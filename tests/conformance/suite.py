"""The official MCP conformance suite, from npm."""

import re
import subprocess
from functools import cache
from pathlib import Path

from tests.third_party.installed import modules_from_npm, new_node

ROOT = Path(__file__).parents[2]
VERSION = "0.2.0-alpha.12"
SUITE_S = 300
_SIDE = re.compile(r"^(?P<side>\w+) scenarios \(", re.MULTILINE)
_RESULT = re.compile(r"^(?P<sign>[✓✗]) (?P<name>[\w/.-]+): \d+ passed, \d+ failed", re.MULTILINE)
_NAME = re.compile(r"^  - (?P<name>[\w/.-]+)$", re.MULTILINE)


def command(*arguments: str) -> list[str]:
    """How it is started. Skips the test where it cannot be installed."""
    return [*_installed(), *arguments]


@cache
def _installed() -> tuple[str, str]:
    script = modules_from_npm("@modelcontextprotocol/conformance", VERSION) / "dist" / "index.js"
    return new_node(), str(script)


def required(side: str, revision: str) -> list[str]:
    """The scenarios that a revision of the protocol requires of clients or of servers, as the suite lists them."""
    listing = subprocess.run(
        command("list", f"--{side}", "--requirements", revision),
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=True,
        stdin=subprocess.DEVNULL,
    ).stdout
    # The headings split it into what stands before the first and then, in turns, a heading and what stands under it.
    _, *parts = _SIDE.split(listing.partition("\nRun and reported")[0])
    under = dict(zip(parts[::2], parts[1::2], strict=True))
    return _NAME.findall(under[side.capitalize()])


def signs(told: str, names: list[str]) -> dict[str, str | None]:
    """How the scenarios went, by the summary of a run: a check mark is without failures and warnings."""
    found = {each["name"]: each["sign"] for each in _RESULT.finditer(told)}
    return {name: found.get(name) for name in names}
