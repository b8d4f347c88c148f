"""The events of a response's stream. Shapes only; `output` says when each is sent.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from typing import Literal

from tenuto.runtime.dialects.openai.logprobs import TokenLogprobAnswer
from tenuto.runtime.dialects.openai.responses.shapes import OutputItem, OutputText, ReasoningText, ResponseAnswer
from tenuto.runtime.http.shape import Shape


class StreamEvent(Shape):
    """What all events have. The numbers of a stream begin with 0 and have no gaps."""

    type: str
    sequence_number: int


class LifecycleEvent(StreamEvent):
    """The response as it stands. The last event of a stream is the third, fourth or fifth of these."""

    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"
    ]
    response: ResponseAnswer


class ItemEvent(StreamEvent):
    """An item has begun, or is whole."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class _OfItem(StreamEvent):
    item_id: str
    output_index: int


class PartEvent(_OfItem):
    """A part of an item has begun, or is whole."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: int
    part: OutputText | ReasoningText


class TextDelta(_OfItem):
    """A piece of the text."""

    type: Literal["response.output_text.delta"]
    content_index: int
    delta: str
    logprobs: list[TokenLogprobAnswer]


class TextDone(_OfItem):
    """The text is whole."""

    type: Literal["response.output_text.done"]
    content_index: int
    text: str
    logprobs: list[TokenLogprobAnswer]


class ReasoningDelta(_OfItem):
    """A piece of the reasoning."""

    type: Literal["response.reasoning_text.delta"]
    content_index: int
    delta: str


class ReasoningDone(_OfItem):
    """The reasoning is whole."""

    type: Literal["response.reasoning_text.done"]
    content_index: int
    text: str


class CallDelta(_OfItem):
    """A piece of what a tool is called with."""

    type: Literal[
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
    ]
    delta: str


class ArgumentsDone(_OfItem):
    """The arguments of a call are whole."""

    type: Literal["response.function_call_arguments.done", "response.mcp_call_arguments.done"]
    arguments: str


class InputDone(_OfItem):
    """The text that a custom tool is called with is whole."""

    type: Literal["response.custom_tool_call_input.done"]
    input: str


class McpEvent(_OfItem):
    """What becomes of a server's tools and their calls."""

    type: Literal[
        "response.mcp_call.in_progress",
        "response.mcp_call.completed",
        "response.mcp_call.failed",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
    ]


class KeepAlive(StreamEvent):
    """Nothing has come for a while."""

    type: Literal["keepalive"]


STREAMED = (
    LifecycleEvent,
    ItemEvent,
    PartEvent,
    TextDelta,
    TextDone,
    ReasoningDelta,
    ReasoningDone,
    CallDelta,
    ArgumentsDone,
    InputDone,
    McpEvent,
    KeepAlive,
)
