"""What of a server's configuration is a secret, and what must stay readable."""

import json
from typing import Any

import pytest

from tenuto.tools.host.secrets import HIDDEN, Secrets
from tenuto.tools.mcp_config import HttpTarget, parse_mcp_config


def hidden(text: str, *arguments: str, **environ: str) -> str:
    entry: dict[str, Any] = {"command": "x", "args": list(arguments)}
    (config,) = parse_mcp_config(json.dumps({"mcpServers": {"a": entry}}), "test", environ)
    return Secrets(config.target).hidden(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--token", "blue-horse"),
        ("--api-key=blue-horse",),
        ("--password", "blue-horse"),
        ("-e", "GITHUB_PAT=blue-horse"),
        ("--header", "Authorization: Bearer blue-horse"),
        ("--header", "X-Api-Key:blue-horse"),
        ("postgresql://ada:blue-horse@db/main",),
        ("https://h/mcp?apiToken=blue-horse",),
        ("--config", '{"apiKey": "blue-horse"}'),
        ("-c", "SECRET='blue-horse' exec server"),
    ],
    ids=" ".join,
)
def test_a_secret_in_the_arguments_is_not_shown(arguments: tuple[str, ...]) -> None:
    assert "blue-horse" not in hidden("refused: blue-horse (blue-horse)", *arguments)


@pytest.mark.parametrize(
    "key",
    [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "sk-proj-Ab3dEfGh1jKlMn0pQrStUv",
        "d41d8cd98f00b204e9800998ecf8427e",
        "123e4567-e89b-12d3-a456-426614174000",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.4Hb-1sCJ3gRr5bcb5kN2pQ",
    ],
)
def test_what_looks_like_a_key_is_not_shown_wherever_it_stands(key: str) -> None:
    assert hidden(f"bad key {key}", key) == "bad key ***"
    assert key not in hidden(f"bad key {key}", f"--x={key}")


def test_what_a_variable_gave_is_not_shown() -> None:
    assert hidden("hunter22 refused", "${WORD}", WORD="hunter22") == "*** refused"
    assert hidden("no /home/ada/x", "${HOME}/x", HOME="/home/ada") == "no /home/ada/x", "a folder is no secret"


@pytest.mark.parametrize(
    "arguments",
    [
        ("server.py", "--port", "8080", "--verbose"),
        ("-y", "@modelcontextprotocol/server-filesystem", "/home/ada/Projects2024"),
        ("-m", "mcp_server_time", "--local-timezone=Europe/Vienna"),
        ("--auth", "none", "--keyboard", "dvorak"),
        ("run", "mcp-server-fetch==2025.4.7", "MyServerNumber1234.py"),
    ],
    ids=" ".join,
)
def test_what_an_error_is_about_stays_readable(arguments: tuple[str, ...]) -> None:
    text = f"error: {' '.join(arguments)}: no such file"
    assert hidden(text, *arguments) == text


def test_what_is_sent_later_is_not_shown_and_only_the_last_of_it_is_kept_in_mind() -> None:
    secrets = Secrets(HttpTarget("https://example.org/mcp"))
    for number in range(1000):
        secrets.learn(f"Bearer token-{number:04}")
    assert secrets.hidden("bad token-0999, bad token-0990") == f"bad {HIDDEN}, bad {HIDDEN}"
    assert secrets.hidden("bad token-0001") == "bad token-0001"
