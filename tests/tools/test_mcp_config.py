"""The mcpServers file as other programs write it, with our keys, and errors that name file, server and field."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import ConfigurationError
from tenuto.tools.approvals import Permission
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, StdioTarget, parse_mcp_config, read_mcp_config
from tenuto.tools.mcp_credentials import OAuthSettings


def parse(servers: dict[str, Any], **environ: str) -> tuple[ServerConfig, ...]:
    return parse_mcp_config(json.dumps({"mcpServers": servers}), "mcp.json", environ)


def refusal(servers: dict[str, Any], **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(servers, **environ)
    return str(caught.value)


def test_a_file_as_other_programs_write_it_is_read(tmp_path: Path) -> None:
    """https://modelcontextprotocol.io/quickstart/user, https://docs.cursor.com/context/mcp"""
    file = tmp_path / "mcp.json"
    file.write_text(
        json.dumps(
            {
                "globalShortcut": "Ctrl+Q",
                "mcpServers": {
                    "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/srv"], "env": {"A": "1"}},
                    "remote": {
                        "type": "http",
                        "url": "https://example.com/mcp",
                        "headers": {"Authorization": "Bearer x"},
                    },
                },
            }
        )
    )
    local, remote = read_mcp_config(file)
    assert local.target == StdioTarget("npx", ("-y", "server-filesystem", "/srv"), {"A": "1"})
    assert remote.target == HttpTarget("https://example.com/mcp", {"Authorization": "Bearer x"}, "http")
    assert (local.name, local.disabled, local.permission.look_up("write_file")) == ("filesystem", False, None)


def test_our_keys_stand_beside_theirs() -> None:
    (server,) = parse(
        {
            "fs": {
                "command": "x",
                "permission": {"read_*": "auto", "delete": "deny"},
                "timeout_s": 5,
                "start_timeout_s": 2.5,
                "max_concurrency": 1,
            }
        }
    )
    assert (server.timeout_s, server.start_timeout_s, server.max_concurrency) == (5, 2.5, 1)
    assert server.permission.look_up("read_file") is Permission.AUTO
    assert server.permission.look_up("delete") is Permission.DENY
    assert server.permission.look_up("write") is None
    (server,) = parse({"fs": {"command": "x", "permission": "ask"}})
    assert server.permission.look_up("anything") is Permission.ASK


def test_variables_and_the_home_directory_are_expanded() -> None:
    (server,) = parse(
        {
            "s": {
                "command": "~/bin/${NAME}",
                "args": ["--key=${env:KEY}", "${MISSING:-default}", "$KEY", "a~/b"],
                "env": {"TOKEN": "${KEY}"},
                "cwd": "~",
            }
        },
        HOME="/home/ann",
        NAME="tool",
        KEY="s3cret",
    )
    assert server.target == StdioTarget(
        "/home/ann/bin/tool",
        ("--key=s3cret", "default", "$KEY", "a~/b"),
        {"TOKEN": "s3cret"},
        "/home/ann",
        ("s3cret",),
    )
    (server,) = parse({"s": {"url": "https://${HOST}/mcp", "headers": {"X": "Bearer ${KEY}"}}}, HOST="h", KEY="k")
    assert server.target == HttpTarget("https://h/mcp", {"X": "Bearer k"}, oauth=OAuthSettings())


def test_secrets_are_not_shown() -> None:
    servers = parse(
        {
            "a": {"command": "x", "env": {"T": "s3cret"}, "args": ["--token", "s3cret"]},
            "b": {"url": "http://h", "headers": {"T": "s3cret"}},
        }
    )
    assert "s3cret" not in repr(servers)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"command": "x", "env": {"T": "${NOPE}"}}, "env.T: the environment variable NOPE is not set"),
        ({"command": "x", "args": ["a", "${NOPE}"]}, "args.1: the environment variable NOPE is not set"),
        ({"url": "http://h", "headers": {"A": "${NOPE}"}}, "headers.A: the environment variable NOPE is not set"),
        ({}, "give either 'command' or 'url'"),
        ({"command": "x", "url": "http://h"}, "give either 'command' or 'url'"),
        ({"command": ""}, "command: "),
        ({"command": "x", "args": "y"}, "args: "),
        ({"url": "ftp://h"}, "url: must begin with http"),
        ({"command": "x", "permission": "yes"}, "permission"),
        ({"command": "x", "permission": {"a": "maybe"}}, "permission"),
        ({"command": "x", "timeout_s": 0}, "timeout_s: "),
        ({"command": "x", "max_concurrency": 0}, "max_concurrency: "),
    ],
)
def test_an_error_names_file_server_and_field(entry: dict[str, Any], told: str) -> None:
    text = refusal({"ok": {"command": "x"}, "bad one": entry})
    assert text.startswith("mcp.json: server 'bad one': ")
    assert told in text


def test_an_error_does_not_show_values() -> None:
    assert "s3cret" not in refusal({"a": {"command": "x", "env": {"T": ["s3cret"]}}})


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {"a": 1}}'])
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"mcp\.json"):
        parse_mcp_config(text, "mcp.json", {})


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.json: cannot be read"):
        read_mcp_config(tmp_path / "nothing.json")


def test_names_become_valid_prefixes_and_stay_different() -> None:
    assert [each.name for each in parse({"My Files!": {"command": "x"}, "b": {"command": "x"}})] == ["My_Files_", "b"]
    assert "another server is already called 'a_b'" in refusal({"a b": {"command": "x"}, "a.b": {"command": "x"}})


def test_a_disabled_server_needs_no_variables() -> None:
    (server,) = parse({"s": {"command": "x", "env": {"T": "${NOPE}"}, "disabled": True}})
    assert server.disabled


def test_a_misspelt_key_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse({"s": {"command": "x", "permision": "deny", "type": "stdio"}})
    assert [record.getMessage() for record in caplog.records] == [
        "mcp.json: server 's': unknown keys are ignored: permision"
    ]


def test_settings_of_single_tools_come_before_those_of_the_server() -> None:
    tools = {"read_*": {"permission": "auto", "timeout_s": 5}, "read_all": {"timeout_s": 600, "max_concurrency": 1}}
    entry = {"url": "https://example.com/sse", "type": "sse", "permission": "deny", "tools": tools}
    (config,) = parse_mcp_config(json.dumps({"mcpServers": {"a": entry}}), "mcp.json", {})
    assert isinstance(config.target, HttpTarget)
    assert config.target.kind == "sse"
    names = ("read_one", "read_all", "write")
    assert [config.timeout_of(name) for name in names] == [5, 600, 120]
    assert [config.concurrency_of(name) for name in names] == [8, 1, 8]
    assert [config.permission.look_up(name) for name in names] == [Permission.AUTO, Permission.AUTO, Permission.DENY]
    assert config.longest_timeout_s == 600
