"""What a tool may ask of the model in the middle of its call: the vocabulary, and what an entry lets its server ask.

As questions to a person do, it comes through the call's own context (`asking`). No model, no MCP.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tenuto.sessions.items import Item, ToolCall, ToolSpec

Mode = Literal["off", "ask", "allow"]
"""`ask`: a person is shown what the model would be asked, and decides each time."""
Choice = Literal["auto", "required", "none"]


class SamplingEntry(BaseModel):
    """What an entry of the `mcpServers` file says of sampling, written out."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode = "ask"
    max_tokens: Annotated[int, Field(ge=1)] = 2048
    budget: Annotated[int, Field(ge=1)] = 65_536
    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    context: bool = False


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How far a server may use the model. `max_tokens` bounds what is sampled for one request, `budget` all that the
    model reads and samples for the server in one run, `concurrency` its requests at a time. `context`: it may have the
    conversation read before what it asks."""

    mode: Mode = "off"
    max_tokens: int = 2048
    budget: int = 65_536
    concurrency: int = 2
    context: bool = False

    @property
    def is_on(self) -> bool:
        """Whether the server is told that it may ask."""
        return self.mode != "off"


OFF = SamplingSettings()


def sampling(entry: SamplingEntry | Mode) -> SamplingSettings:
    """What an entry says."""
    written = entry if isinstance(entry, SamplingEntry) else SamplingEntry(mode=entry)
    return SamplingSettings(**written.model_dump())


class SampleEnd(StrEnum):
    """Why the model stopped."""

    END = "end"
    STOP_STRING = "stop_string"
    LENGTH = "length"
    CALLS = "calls"


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """What the model is to go on from, and by how much. `budget` are the tokens that `server` has for its run.

    `with_context`: the conversation in which the call is made comes first, where nothing here stands in its way.
    """

    server: str
    items: tuple[Item, ...]
    max_tokens: int
    budget: int
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    choice: Choice = "auto"
    with_context: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """What the model has said. The calls are for the server to make."""

    model: str
    text: str
    end: SampleEnd
    calls: tuple[ToolCall, ...] = field(default=())


AskModel = Callable[[SampleRequest], Awaitable[Sample]]
"""Lets the model speak. Raises CannotAsk of `asking`."""
