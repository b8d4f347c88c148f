"""docs/clients.md shows what `tenuto launch` does: the same words, and the same numbers."""

import re
from pathlib import Path

from tenuto.runtime.terminal.launch.agent import Setup, Target, shown
from tenuto.runtime.terminal.launch.command import AGENTS

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
TARGET = Target("http://127.0.0.1:8420", "coder", 131_072)
SETTINGS = "~/.cache/tenuto/launch/settings.json"


def command(name: str) -> str:
    """What the page has to show for a client; the name of the file of settings is shortened there."""
    agent = AGENTS[name]
    setup = agent.setup(TARGET)
    if setup.settings is not None:
        setup = Setup({**setup.environment, setup.settings_variable: SETTINGS}, setup.arguments)
    return shown(agent.program, setup, TARGET, ()).replace(f"'{SETTINGS}'", SETTINGS)


def test_the_page_shows_what_each_client_is_started_with() -> None:
    assert re.findall(r"```console\n(.*?)\n```", PAGE, re.DOTALL) == [command(name) for name in AGENTS]


def test_the_page_has_the_contexts_that_are_needed() -> None:
    for agent in AGENTS.values():
        assert agent.title in PAGE
        assert f"{agent.least_context:,}" in PAGE
