"""What a server behind us asks the model, put to an MCP client that offers its own, in both eras of the protocol.

It is for calls that a client makes itself: those of a run are answered by the run's model.
"""

import json
from collections.abc import Iterator, Sequence

import mcp.types as t

from tenuto.runtime.mcp.server_base import Context, capabilities
from tenuto.sessions.items import AssistantItem, Attachment, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.tools.asking import CannotAsk
from tenuto.tools.sampling import Sample, SampleEnd, SampleRequest

_ENDS = {"toolUse": SampleEnd.CALLS, "stopSequence": SampleEnd.STOP_STRING, "maxTokens": SampleEnd.LENGTH}

Sampled = t.CreateMessageResult | t.CreateMessageResultWithTools


def can_sample(context: Context, request: SampleRequest) -> bool:
    """Whether the client has said that it answers requests of this kind."""
    sampling = capabilities(context).sampling
    return sampling is not None and (not request.tools or sampling.tools is not None)


def offers_model(context: Context) -> bool:
    """Whether the client answers any."""
    return capabilities(context).sampling is not None


def wire_request(request: SampleRequest) -> t.CreateMessageRequest:
    """A request in the protocol's form."""
    system = "\n\n".join(item.text for item in request.items if isinstance(item, SystemItem))
    tools = [
        t.Tool(name=tool.name, description=tool.description or None, input_schema=dict(tool.parameters))
        for tool in request.tools
    ]
    params = t.CreateMessageRequestParams(
        messages=list(_messages(request.items)),
        system_prompt=system or None,
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        stop_sequences=list(request.stop) or None,
        tools=tools or None,
        tool_choice=t.ToolChoice(mode=request.choice) if tools else None,
        include_context="thisServer" if request.with_context else None,
    )
    return t.CreateMessageRequest(params=params)


def sample_of(result: Sampled) -> Sample:
    """What the client's model has said. Raises CannotAsk where that is neither text nor calls."""
    blocks = result.content if isinstance(result.content, list) else [result.content]
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        match block:
            case t.TextContent():
                texts.append(block.text)
            case t.ToolUseContent():
                calls.append(ToolCall(block.id, block.name, json.dumps(block.input)))
            case _:
                raise CannotAsk(f"the client's model answered with {block.type}, and not with text")
    end = SampleEnd.CALLS if calls else _ENDS.get(result.stop_reason or "", SampleEnd.END)
    return Sample(result.model, "".join(texts), end, tuple(calls))


def _messages(items: Sequence[Item]) -> Iterator[t.SamplingMessage]:
    """The conversation. Results that follow one another are one message, as the protocol wants them."""
    results: list[t.SamplingMessageContentBlock] = []
    for item in items:
        if isinstance(item, ToolResultItem):
            results.append(_result(item))
            continue
        if results:
            yield t.SamplingMessage(role="user", content=results)
            results = []
        match item:
            case UserItem():
                yield t.SamplingMessage(role="user", content=[_said(item.text), *_media(item.attachments)])
            case AssistantItem():
                used: list[t.SamplingMessageContentBlock] = [_used(call) for call in item.calls]
                text = [_said(item.text)] if item.text or not used else []
                yield t.SamplingMessage(role="assistant", content=[*text, *used])
            case _:
                pass  # the system's words have a place of their own
    if results:
        yield t.SamplingMessage(role="user", content=results)


def _said(text: str) -> t.TextContent:
    return t.TextContent(type="text", text=text)


def _used(call: ToolCall) -> t.ToolUseContent:
    return t.ToolUseContent(type="tool_use", id=call.id, name=call.name, input=json.loads(call.arguments or "{}"))


def _result(item: ToolResultItem) -> t.ToolResultContent:
    content: list[t.ContentBlock] = [_said(item.text), *_media(item.attachments)]
    return t.ToolResultContent(
        type="tool_result", tool_use_id=item.call_id, content=content, is_error=item.is_error or None
    )


def _media(attachments: Sequence[Attachment]) -> Iterator[t.ImageContent | t.AudioContent]:
    for each in attachments:
        if each.data is not None and each.kind == "image":
            yield t.ImageContent(type="image", data=each.data, mime_type=each.mime_type)
        elif each.data is not None and each.kind == "audio":
            yield t.AudioContent(type="audio", data=each.data, mime_type=each.mime_type)
