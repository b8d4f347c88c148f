from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from tenuto.errors import ConfigurationError
from tenuto.pipelines.adapters import Adapter
from tenuto.runtime.cli import _options
from tenuto.runtime.config import CONFIG, Settings, command_line, flag, load, takes_several, variable
from tenuto.runtime.setting_values import Key

SAMPLES: dict[str, tuple[str, str, Any]] = {
    # field: (as a flag or variable, as TOML, as it is then)
    "model": ("scripted:a.json", '["scripted:a.json"]', ("scripted:a.json",)),
    "alias": ("gpt-*=small", '["gpt-*=small"]', (("gpt-*", "small"),)),
    "tool_format": ("qwen*=hermes", '["qwen*=hermes"]', (("qwen*", "hermes"),)),
    "strict_model_names": ("true", "true", True),
    "context": ("4096", "4096", 4096),
    "slots": ("3", "3", 3),
    "load": ("request", '"request"', "request"),
    "model_memory": ("4GiB", '"4GiB"', 4 << 30),
    "pin": ("a", '["a"]', ("a",)),
    "keep_loaded_s": ("300", "300", 300.0),
    "load_wait_s": ("60", "60", 60.0),
    "swap": ("rerender", '"rerender"', "rerender"),
    "drafts": ("0", "0", 0),
    "cache_type": ("q8_0", '"q8_0"', "q8_0"),
    "gpu_layers": ("20", "20", 20),
    "threads": ("5", "5", 5),
    "cache_bytes": ("2GiB", '"2GiB"', 2 << 30),
    "prefill_slowdown": ("1.5", "1.5", 1.5),
    "host_cache_bytes": ("0", "0", 0),
    "disk_cache_bytes": ("1MiB", '"1MiB"', 1 << 20),
    "disk_cache_s": ("60", "60", 60.0),
    "engine": ("thread", '"thread"', "thread"),
    "host": ("::1", '"::1"', "::1"),
    "port": ("0", "0", 0),
    "api_key": ("sesame", '"sesame"', ("sesame",)),
    "keys": ('{"key": "k", "person": true}', '[{key = "k", person = true}]', (Key(key="k", person=True),)),
    "public_url": ("http://127.0.0.1:8420/", '"http://127.0.0.1:8420/"', "http://127.0.0.1:8420"),
    "oauth_issuer": (
        "https://login.example.org/realm",
        '["https://login.example.org/realm"]',
        ("https://login.example.org/realm",),
    ),
    "allowed_hosts": ("box.local", '["box.local"]', ("box.local",)),
    "allowed_origins": ("https://a.example", '["https://a.example"]', ("https://a.example",)),
    "max_head_bytes": ("32KiB", '"32KiB"', 32 << 10),
    "max_body_bytes": ("1MB", '"1MB"', 1_000_000),
    "shared_prefixes": ("system", '"system"', "system"),
    "warm": ("/tmp/warm.json", '"/tmp/warm.json"', Path("/tmp/warm.json")),
    "queue_limit": ("7", "7", 7),
    "max_connections": ("9", "9", 9),
    "arrival_s": ("2.5", "2.5", 2.5),
    "patience_s": ("3.5", "3.5", 3.5),
    "shutdown_s": ("1.5", "1.5", 1.5),
    "data_dir": ("/tmp/t", '"/tmp/t"', Path("/tmp/t")),
    "durability": ("full", '"full"', "full"),
    "implicit_session_s": ("60", "60", 60.0),
    "mcp_config": ("/tmp/mcp.json", '"/tmp/mcp.json"', Path("/tmp/mcp.json")),
    "prompts": ("/tmp/prompts", '"/tmp/prompts"', Path("/tmp/prompts")),
    "mmproj": ("/tmp/mmproj.gguf", '"/tmp/mmproj.gguf"', Path("/tmp/mmproj.gguf")),
    "lora": ("terse=/tmp/t.gguf@0.5", '{terse = "/tmp/t.gguf@0.5"}', (("terse", Adapter(Path("/tmp/t.gguf"), 0.5)),)),
    "default_tools": ("none", '"none"', "none"),
    "tool_share": ("0.5", "0.5", 0.5),
    "agent_permission": ("deny", '"deny"', "deny"),
    "egress": ("public", '"public"', "public"),
    "max_tool_rounds": ("0", "0", 0),
    "client_tool_expires_s": ("10", "10", 10.0),
    "approval_expires_s": ("20", "20", 20.0),
    "task_after_s": ("5", "5", 5.0),
    "max_tokens": ("9", "9", 9),
    "deadline_s": ("30", "30", 30.0),
    "temperature": ("0", "0", 0.0),
    "log_level": ("debug", '"debug"', "debug"),
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's own reaches these tests."""
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.chdir(tmp_path)


def refusal() -> str | None:
    try:
        load()
    except ConfigurationError as exc:
        return str(exc)
    return None


def as_flag(name: str, text: str) -> dict[str, Any]:
    return {name: (text,) if takes_several(name) else text}


def test_every_setting_has_a_sample_here() -> None:
    assert set(SAMPLES) == set(Settings.model_fields) - {CONFIG}


def test_every_setting_has_a_help_text() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("name", SAMPLES)
def test_every_setting_can_be_given_as_a_flag_a_variable_and_a_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, toml, value = SAMPLES[name]
    if name == "oauth_issuer":  # means nothing alone
        monkeypatch.setenv("TENUTO_PUBLIC_URL", "https://llm.example.org")
        monkeypatch.setenv("TENUTO_API_KEY", "k")
    assert getattr(load(), name) != value
    assert getattr(load(as_flag(name, text)), name) == value
    Path("tenuto.toml").write_text(f"{name} = {toml}\n")
    assert getattr(load(), name) == value
    Path("tenuto.toml").unlink()
    monkeypatch.setenv(variable(name), text)
    assert getattr(load(), name) == value


def test_flags_win_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tenuto.toml").write_text('port = 1\nqueue_limit = 1\nmodel = ["file"]\n')
    monkeypatch.setenv("TENUTO_QUEUE_LIMIT", "2")
    monkeypatch.setenv("TENUTO_MODEL", "first, second")
    assert (load().port, load().queue_limit, load().model) == (1, 2, ("first", "second"))
    assert load({"queue_limit": "3", "model": ("flag",)}).queue_limit == 3
    assert load({"model": ("flag,with comma",)}).model == ("flag,with comma",)


def test_the_file_can_be_named_by_flag_and_by_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text("port = 1\n")
    two.write_text("port = 2\n")
    monkeypatch.setenv("TENUTO_CONFIG", str(one))
    assert load().port == 1
    assert load({"config": str(two)}).port == 2


@pytest.mark.parametrize(("given", "expected"), [("all", "all"), ("none", "none"), ("a__b,c__d", ("a__b", "c__d"))])
def test_default_tools_are_a_word_or_names(given: str, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_DEFAULT_TOOLS", given)
    assert load().default_tools == expected


def test_an_error_names_the_flag_the_variable_or_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"^--port: .*'x'"):
        load({"port": "x"})
    Path("tenuto.toml").write_text("port = 70000\n")
    with pytest.raises(ConfigurationError, match=r"^port in tenuto\.toml: .*70000"):
        load()
    monkeypatch.setenv("TENUTO_PORT", "y")
    with pytest.raises(ConfigurationError, match=r"^TENUTO_PORT: .*'y'"):
        load()


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    Path("tenuto.toml").write_text("modle = []\n")
    with pytest.raises(ConfigurationError, match=r"modle in tenuto\.toml: .*did you mean model\?"):
        load()


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port = 1\nport = 2"])
def test_a_broken_file_is_a_configuration_error(content: bytes) -> None:
    Path("tenuto.toml").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"tenuto\.toml"):
        load()


def test_a_file_that_was_named_must_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        load({"config": "nowhere.toml"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.local"])
def test_other_machines_are_let_in_only_with_a_key(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--api-key"):
        load({"host": host})
    assert load({"host": host, "api_key": ("k",)}).host == host


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sesame" not in repr(load({"api_key": ("sesame",)}))
    monkeypatch.setenv("TENUTO_API_KEY", '["sesame", 3]')
    with pytest.raises(ConfigurationError) as caught:
        load()
    assert "sesame" not in str(caught.value)
    assert "TENUTO_API_KEY" in str(caught.value)


def test_an_empty_key_opens_nothing() -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        load({"host": "0.0.0.0", "api_key": (" ",)})


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(load(), "port", 1)  # noqa: B010  (mypy knows better)


@given(name=st.sampled_from(sorted(SAMPLES)), text=st.text(max_size=20).filter(lambda t: "\0" not in t))
@example(name="data_dir", text="~nobody-of-this-name/data")
@checks(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
def test_any_text_in_the_environment_is_taken_or_refused_by_name(name: str, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            patch.setenv(variable(name), text)
        except UnicodeEncodeError:
            return
        error = refusal()
        assert error is None or variable(name) in error or name == "host"


def test_a_flag_is_the_fields_name_with_dashes() -> None:
    assert flag("max_body_bytes") == "--max-body-bytes"


def test_a_key_in_the_file_says_what_its_holder_is() -> None:
    Path("tenuto.toml").write_text('[[keys]]\nkey = "a"\nname = "ada"\nperson = true\n[[keys]]\nkey = "b"\n')
    assert load().keys == (Key(key="a", name="ada", person=True), Key(key="b"))


@pytest.mark.parametrize(
    "given",
    [
        '{"key": "sesame"',
        '{"key": "sesame", "persn": true}',
        '{"key": "sesame", "name": "a b"}',
        '{"key": " "}',
        '{"key": "sesame"}, {"key": "sesame"}',
    ],
)
def test_a_key_that_is_given_wrongly_is_refused_and_not_shown(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_KEYS", f"[{given}]")
    told = refusal()
    assert told is not None
    assert "sesame" not in told


def test_a_key_is_not_described_and_given_plainly_too() -> None:
    with pytest.raises(ConfigurationError, match="given twice"):
        load({"keys": ('{"key": "k"}',), "api_key": ("k",)})


def test_a_server_that_any_web_page_could_reach_does_not_start_without_a_key() -> None:
    with pytest.raises(ConfigurationError, match=r"allowed_hosts \*.* key is required"):
        load({"allowed_hosts": ("*",)})
    assert load({"allowed_hosts": ("*",), "api_key": ("k",)}).allowed_hosts == ("*",)
    assert load({"allowed_hosts": ("*",), "keys": ('{"key": "k"}',)}).allowed_hosts == ("*",)


def test_the_keys_of_the_documentation_can_be_used_as_they_stand() -> None:
    page = (Path(__file__).parents[2] / "docs" / "principals.md").read_text()
    toml = page.partition("```toml\n")[2].partition("```")[0]
    for number in range(3):
        toml = toml.replace('"..."', f'"key-{number}"', 1)
    Path("tenuto.toml").write_text(toml)
    assert [(key.name, key.person, key.admin) for key in load().keys] == [
        ("ada", True, False),
        ("ada", False, False),
        (None, False, True),
    ]


def test_settings_become_the_command_line_that_gives_them() -> None:
    flags = {"max_body_bytes": 1024, "model": ("a", "b"), "strict_model_names": True}
    words = ["--max-body-bytes", "1024", "--model", "a", "--model", "b", "--strict-model-names"]
    assert command_line(flags) == words


def test_aliases_may_be_a_table() -> None:
    Path("tenuto.toml").write_text('[alias]\n"gpt-*" = "small"\nclaude = "large"\n')
    assert load().alias == (("gpt-*", "small"), ("claude", "large"))


@pytest.mark.parametrize("alias", ["small", "=small", "gpt=", ""])
def test_an_alias_without_a_name_or_a_model_is_refused(alias: str) -> None:
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        load({"alias": (alias,)})


def test_switches_are_options_without_a_value() -> None:
    (option,) = [one for one in _options() if one.name == "strict_model_names"]
    assert isinstance(option, click.Option)
    assert (option.is_flag, option.default) == (True, None)


def test_a_tool_call_format_without_a_model_is_for_all() -> None:
    assert load({"tool_format": ("hermes", "llama*=llama3")}).tool_format == (("*", "hermes"), ("llama*", "llama3"))


def test_access_tokens_are_taken_only_for_a_url_that_is_set() -> None:
    with pytest.raises(ConfigurationError, match=r"--oauth-issuer .*needs --public-url"):
        load({"oauth_issuer": ("https://login.example.org",)})


def test_a_public_url_or_other_machines_need_a_key_or_an_issuer() -> None:
    url, issuer = "https://llm.example.org", ("https://login.example.org",)
    with pytest.raises(ConfigurationError, match=r"--public-url .*lets others in"):
        load({"public_url": url})
    settings = load({"public_url": f"{url}/", "oauth_issuer": issuer, "host": "0.0.0.0"})
    assert (settings.public_url, settings.oauth_issuer) == (url, issuer)


@pytest.mark.parametrize("issuer", ["login.example.org", "http://login.example.org", "https://u@h", "https://h/?a=b"])
def test_an_issuer_that_anybody_could_be_is_refused(issuer: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--oauth-issuer"):
        load({"public_url": "https://llm.example.org", "oauth_issuer": (issuer,)})
