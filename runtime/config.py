"""The server's settings: defaults < tenuto.toml < environment < flags, as one frozen object.

One rule names a setting everywhere: `--max-body-bytes`, `TENUTO_MAX_BODY_BYTES`, `max_body_bytes = ...` in tenuto.toml.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin
from urllib.parse import urlsplit

import platformdirs
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tenuto.errors import ConfigurationError
from tenuto.paths import expanded
from tenuto.pipelines.adapters import Adapter
from tenuto.pipelines.cache_types import CacheType
from tenuto.runtime.addresses import is_loopback
from tenuto.runtime.setting_values import (
    IssuerUrl,
    Key,
    Names,
    PublicUrl,
    adapters,
    formats,
    objects,
    pairs,
    several,
    words,
)

ENVIRONMENT_PREFIX = "TENUTO_"
FILE_NAME = "tenuto.toml"
CONFIG = "config"
"""The setting that names the file, and so has no place in it."""


def data_folder() -> Path:
    """Where this platform keeps a user's data of Tenuto."""
    return platformdirs.user_data_path("tenuto", appauthor=False)


UserPath = Annotated[Path, AfterValidator(expanded)]


class Settings(BaseSettings):
    """Every setting of a server, with the help text of its flag.

    Constructed directly it reads the environment and the file as well; `load` does the same with clear errors.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    config: UserPath | None = Field(None, description=f"Settings file; default: ./{FILE_NAME}, if it exists.")

    model: Names = Field(
        ("embedded",),
        min_length=1,
        description="Model to load: embedded, a GGUF file, an MLX folder, hf:OWNER/REPO[:QUANT] or scripted:FILE.",
    )
    alias: Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(pairs)] = Field(
        (),
        description="Another name for a model: NAME=MODEL, where NAME may be a glob; in tenuto.toml, also a table.",
    )
    tool_format: Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(formats)] = Field(
        (),
        description="Tool-call format: NAME, or MODEL=NAME, where MODEL may be a glob; default: its template's.",
    )
    strict_model_names: bool = Field(
        False, description="Refuse unknown model names; a model that is served alone answers to any name otherwise."
    )
    load: Literal["start", "request"] = Field(
        "start", description="When the models are loaded: all at the start, or each at its first request."
    )
    model_memory: ByteSize | None = Field(
        None, gt=0, description="Weights and caches of all loaded models together; idle models make room for others."
    )
    pin: Names = Field((), description="Model that is never unloaded by itself.")
    keep_loaded_s: float | None = Field(
        None, ge=0, description="Seconds a model stays loaded without use; default: until its room is needed."
    )
    load_wait_s: float = Field(300.0, gt=0, description="Seconds a request waits for its model to load.")
    swap: Literal["finish", "rerender"] = Field(
        "finish", description="Runs that wait while their model is replaced: finish on its old version, or use the new."
    )
    mmproj: UserPath | None = Field(
        None, description="Projector with which the first model reads images; default: one beside its GGUF file."
    )
    lora: Annotated[tuple[tuple[str, Adapter], ...], NoDecode, BeforeValidator(adapters)] = Field(
        (), description="LoRA adapter, a GGUF file: NAME=PATH[@SCALE]; MODEL+NAME is then a model, loaded on request."
    )
    context: int | None = Field(
        None, ge=256, description="Context length per sequence, in tokens; default: the model's own."
    )
    slots: int | None = Field(
        None, ge=1, le=1024, description="Sequences per model that keep their cache on the device."
    )
    cache_type: CacheType | None = Field(None, description="KV cache of GGUF models; default: f16, else what fits.")
    drafts: int = Field(
        64,
        ge=0,
        le=1024,
        description="Guessed tokens verified in a step of GGUF models, where it saves time; 0: none.",
    )
    gpu_layers: int | None = Field(None, ge=-1, description="Layers on accelerators, -1: all; default: what fits.")
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads, divided among the models; default: one per core."
    )
    engine: Literal["thread", "process"] = Field(
        "process", description="Where engines run: in the server, or each in a process that is begun again if it ends."
    )
    prefill_slowdown: float = Field(
        2.0, gt=1, description="How many times as slowly others may decode while prompts are fed, on average."
    )
    cache_bytes: ByteSize | None = Field(None, gt=0, description="KV cache on the device, per model, e.g. 4GiB.")
    host_cache_bytes: ByteSize = Field(ByteSize(1 << 30), ge=0, description="KV cache in host memory, per model.")
    disk_cache_bytes: ByteSize = Field(
        ByteSize(4 << 30), ge=0, description="KV cache in the data folder, per model, kept over restarts; 0: none."
    )
    disk_cache_s: float = Field(7 * 86400.0, gt=0, description="Seconds a KV cache is kept in the data folder.")

    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; anything but loopback requires an API key."
    )
    port: int = Field(8420, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    api_key: Names = Field((), repr=False, description="API key that clients must send as a bearer token.")
    keys: Annotated[tuple[Key, ...], NoDecode, BeforeValidator(objects)] = Field(
        (),
        repr=False,
        description="API key with an identity: {key, name, person, admin}; in tenuto.toml, a table [[keys]].",
    )
    public_url: PublicUrl | None = Field(
        None, description="URL by which clients reach this server, e.g. https://llm.example.org; its host is allowed."
    )
    oauth_issuer: Annotated[tuple[IssuerUrl, ...], NoDecode, BeforeValidator(several)] = Field(
        (), description="Authorization server whose access tokens (JWT) are taken beside API keys; needs public_url."
    )
    allowed_hosts: Names = Field((), description="Host header to accept besides the listening address.")
    allowed_origins: Names = Field(
        (),
        description="Origin whose pages may call, e.g. https://example.org or vscode-webview://*.",
    )
    max_body_bytes: ByteSize = Field(
        ByteSize(16 << 20), gt=0, description="Largest request body; 16 of them may arrive at a time."
    )
    max_head_bytes: ByteSize = Field(ByteSize(64 << 10), gt=0, description="Largest request head.")
    max_connections: int = Field(1024, ge=1, description="Most connections at a time; more are refused.")
    arrival_s: float = Field(60.0, gt=0, description="Seconds a client may take to send a request.")
    patience_s: float = Field(120.0, gt=0, description="Seconds a client may leave its answer unread.")
    shared_prefixes: Literal["none", "system", "all"] = Field(
        "none", description="How much of a prompt's cache keys share: nothing, system prompt and tools, or all."
    )
    warm: UserPath | None = Field(
        None, description="JSON file of system prompts and tools that are read before a request has them."
    )
    queue_limit: int = Field(64, ge=1, description="Most requests waiting per model; more are refused.")
    shutdown_s: float = Field(20.0, ge=0, description="Seconds that open requests get to finish at shutdown.")

    data_dir: UserPath = Field(
        default_factory=data_folder, description="Data folder; only one server at a time can use it."
    )
    durability: Literal["process", "full"] = Field(
        "process",
        description="What acknowledged state survives: process (a crash of the server) or full (also a power loss).",
    )
    implicit_session_s: float = Field(86400.0, gt=0, description="Seconds to keep sessions that no client named.")

    mcp_config: UserPath | None = Field(None, description="JSON file with `mcpServers` whose tools the model may use.")
    prompts: UserPath | None = Field(None, description="Folder of prompts (*.toml) that MCP clients can use.")
    default_tools: Annotated[Literal["all", "none"] | tuple[str, ...], NoDecode, BeforeValidator(words)] = Field(
        "all", description="Server tools for requests that do not name any: all, none, or a list."
    )
    tool_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Share of a context for servers' tools; if they take more, the model searches them.",
    )
    agent_permission: Literal["auto", "ask", "deny"] | None = Field(
        None, description="Permission for MCP servers' tools; default: ask, if the client can answer."
    )
    egress: Literal["off", "public", "all"] = Field(
        "off",
        description="What requests may have called: MCP servers and sources of models; none, public ones, or any.",
    )
    max_tool_rounds: int = Field(16, ge=0, description="Most rounds of server tools before the model must answer.")
    client_tool_expires_s: float = Field(
        86400.0, gt=0, description="Seconds a run waits for the client's tool results."
    )
    approval_expires_s: float = Field(3600.0, gt=0, description="Seconds a run waits for an approval or an answer.")
    task_after_s: float = Field(
        2.0, ge=0, description="Seconds after which a call of MCP's chat goes on as a task, if its client has tasks."
    )

    max_tokens: int = Field(4096, ge=1, description="Most tokens in an answer, unless the request sets a limit.")
    deadline_s: float = Field(600.0, gt=0, description="Seconds a run may take before the model must answer.")
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="Sampling temperature unless the request sets one; default: one that suits the model.",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe messages to log on stderr."
    )

    @model_validator(mode="after")
    def _an_open_door_has_a_lock(self) -> Self:
        if any(not key.strip() for key in self.api_key):
            raise ValueError(f"an API key is empty ({flag('api_key')}, {variable('api_key')})")
        described = [each.key for each in self.keys]
        if len(set(described)) < len(described) or not set(described).isdisjoint(self.api_key):
            raise ValueError(f"an API key is given twice ({flag('api_key')}, {flag('keys')})")
        if self.oauth_issuer and self.public_url is None:
            raise ValueError(
                f"{flag('oauth_issuer')} needs {flag('public_url')} ({variable('public_url')}): access tokens must be"
                " for that URL, or those that were made for other servers would open this one"
            )
        if self.api_key or described or self.oauth_issuer:
            return self
        if not is_loopback(self.host):
            raise ValueError(
                f"listening on {self.host} lets other machines in, so an API key is required: set {flag('api_key')} or"
                f" {variable('api_key')}, or listen on 127.0.0.1"
            )
        if self.public_url is not None and not is_loopback(urlsplit(self.public_url).hostname or ""):
            raise ValueError(
                f"{flag('public_url')} ({variable('public_url')}) lets others in, so a key is required: set"
                f" {flag('api_key')}, {variable('api_key')} or {flag('oauth_issuer')}"
            )
        if "*" in self.allowed_hosts:
            raise ValueError(
                "allowed_hosts * lets any web page reach this server by DNS rebinding, so an API"
                f" key is required: set {flag('api_key')} or {variable('api_key')}, or list the hosts"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (the library passes it)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags before environment before file."""
        file = _file(init_settings())
        return (init_settings, env_settings, *([TomlConfigSettingsSource(settings_cls, file)] if file else []))


def load(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process; `flags` are by field name.

    Raises:
        ConfigurationError: a value is wrong, or a name unknown; the text says where it was given.
    """
    given = dict(flags or {})
    try:
        return Settings(**given)
    except ValidationError as exc:
        problems = "; ".join(_problem(error["loc"], error, given) for error in exc.errors(include_url=False))
        raise ConfigurationError(problems) from None
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"{_file(given)} is not valid TOML: {exc}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{_file(given)} cannot be read: {exc}") from exc


def flag(name: str) -> str:
    """The flag that sets a field."""
    return "--" + name.replace("_", "-")


def command_line(flags: Mapping[str, Any]) -> list[str]:
    """The words that give these settings on a command line. A tuple is given value by value, a switch without any."""
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in flags.items()}
    words = ((flag(name), value) for name, values in several.items() for value in values)
    return [word for name, value in words for word in ([name] if value is True else [name, str(value)])]


def variable(name: str) -> str:
    """The environment variable that sets a field."""
    return ENVIRONMENT_PREFIX + name.upper()


def takes_several(name: str) -> bool:
    """Whether a field's flag may be given more than once."""
    annotation = Settings.model_fields[name].annotation
    return tuple in {get_origin(annotation), *map(get_origin, get_args(annotation))}


def _file(given: Mapping[str, Any]) -> Path | None:
    """The settings file: the one that was named, else one in the working folder, else none."""
    named = given.get(CONFIG) or os.environ.get(variable(CONFIG))
    if named is None:
        return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None
    try:
        path = expanded(named)
    except ValueError as error:
        raise ConfigurationError(f"the settings file {named}: {error}") from None
    if not path.is_file():
        raise ConfigurationError(f"there is no settings file {path}")
    return path


def _problem(location: tuple[int | str, ...], error: ErrorDetails, given: Mapping[str, Any]) -> str:
    """One error in words: where the value was given, what is wrong with it, and the value unless it is secret."""
    if not location:
        return str(error["ctx"]["error"])
    name = str(location[0])
    if name in given:
        where = flag(name)
    elif variable(name) in os.environ:
        where = variable(name)
    else:
        where = f"{name} in {_file(given)}"
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Settings.model_fields, n=1)
        return f"{where}: there is no such setting" + (f"; did you mean {near[0]}?" if near else "")
    shown = "" if name in ("api_key", "keys") else f" (it is {error['input']!r})"
    return f"{where}: {error['msg']}{shown}"
