"""A server's sampling request as a request of ours, and what the model said as its result. Bounded: servers are
strangers.

https://modelcontextprotocol.io/specification/2025-11-25/client/sampling
"""

import json
import re
from collections.abc import Iterator, Sequence

from mcp_types import (
    AudioContent,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ImageContent,
    SamplingMessage,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_types import Tool as WireTool
from pydantic import ValidationError

from tenuto.errors import InvalidRequest
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    JsonObject,
    SystemItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)
from tenuto.sessions.questions import Question, QuestionMode
from tenuto.sessions.schemas import malformed
from tenuto.sessions.tool_limits import MOST_DESCRIPTION, expect_within
from tenuto.tools.asking import CannotAsk
from tenuto.tools.host.callbacks import SampleResult
from tenuto.tools.host.results import MAX_TEXT_CHARACTERS, shortened, to_result
from tenuto.tools.sampling import Sample, SampleEnd, SampleRequest, SamplingSettings

MOST_MESSAGES = 1_000
MOST_CHARACTERS = 4 << 20
"""Of all messages together, as JSON."""
MOST_STOPS = 16
MOST_STOP_CHARACTERS = 512
MOST_TOOLS = 128
HOTTEST = 5.0
SHOWN_CHARACTERS = 6_000
"""Of what the model would be asked, a person is shown so much: its beginning and its end."""
CONSENT: JsonObject = {"type": "object", "properties": {}}
"""The form in which a person lets the model be asked, or does not."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ENDS = {SampleEnd.END: "endTurn", SampleEnd.STOP_STRING: "stopSequence", SampleEnd.LENGTH: "maxTokens"}


def request_of(server: str, params: CreateMessageRequestParams, settings: SamplingSettings) -> SampleRequest:
    """What the model is asked. Raises CannotAsk, which says what is wrong with it."""
    if not 1 <= len(params.messages) <= MOST_MESSAGES:
        raise CannotAsk(f"messages: there must be 1 to {MOST_MESSAGES}")
    if len(params.model_dump_json()) > MOST_CHARACTERS:
        raise CannotAsk(f"the request has more than {MOST_CHARACTERS} characters")
    if params.max_tokens < 1:
        raise CannotAsk("maxTokens: must be at least 1")
    if params.temperature is not None and not 0 <= params.temperature <= HOTTEST:
        raise CannotAsk(f"temperature: must be from 0 to {HOTTEST:g}")
    stops = params.stop_sequences or []
    if len(stops) > MOST_STOPS or any(not 1 <= len(stop) <= MOST_STOP_CHARACTERS for stop in stops):
        raise CannotAsk(f"stopSequences: at most {MOST_STOPS}, each of 1 to {MOST_STOP_CHARACTERS} characters")
    tools = _tools(params.tools or [])
    mode = (params.tool_choice and params.tool_choice.mode) or "auto"
    if mode == "required" and not tools:
        raise CannotAsk("toolChoice: requires a call, but there are no tools")
    system = [SystemItem(params.system_prompt)] if params.system_prompt else []
    wants_context = params.include_context in ("thisServer", "allServers")
    return SampleRequest(
        server=server,
        items=(*system, *_conversation(params.messages)),
        max_tokens=min(params.max_tokens, settings.max_tokens),
        budget=settings.budget,
        temperature=params.temperature,
        stop=tuple(stops),
        tools=tools,
        choice=mode,
        with_context=wants_context and settings.context and not tools and not system,
    )


def consent_to(request: SampleRequest, resume: JsonObject | None = None) -> Question:
    """The question whether the model may be asked, with what it would be asked."""
    asked = "\n\n".join(_shown(item) for item in request.items)
    begins = f"wants to ask the model for up to {request.max_tokens} tokens"
    if request.with_context:
        begins += ", after the conversation so far"
    if request.tools:
        begins += f", with tools of its own ({shortened(', '.join(tool.name for tool in request.tools), 500)})"
    message = f"{request.server} {begins}:\n\n{shortened(asked, SHOWN_CHARACTERS)}"
    return Question(request.server, QuestionMode.FORM, message, CONSENT, resume=resume)


def result_of(sample: Sample, request: SampleRequest) -> SampleResult:
    """What the server gets to read. Raises CannotAsk where the model's calls cannot be told."""
    text = TextContent(type="text", text=sample.text)
    end = "toolUse" if sample.end is SampleEnd.CALLS else _ENDS[sample.end]
    if not request.tools:
        return CreateMessageResult(role="assistant", content=text, model=sample.model, stop_reason=end)
    calls = [ToolUseContent(id=call.id, name=call.name, input=_arguments(call)) for call in sample.calls]
    content: list[SamplingMessageContentBlock] = [*([text] if sample.text or not calls else []), *calls]
    return CreateMessageResultWithTools(role="assistant", content=content, model=sample.model, stop_reason=end)


def _arguments(call: ToolCall) -> JsonObject:
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CannotAsk(f"the model called {call.name} with arguments that are not a JSON object")
    return value


def _tools(tools: Sequence[WireTool]) -> tuple[ToolSpec, ...]:
    if len(tools) > MOST_TOOLS:
        raise CannotAsk(f"tools: at most {MOST_TOOLS}")
    specs = {f"tools.{place}": ToolSpec(t.name, t.description or "", t.input_schema) for place, t in enumerate(tools)}
    try:
        expect_within(specs, "inputSchema")
    except InvalidRequest as exc:
        raise CannotAsk(str(exc)) from exc
    for place, spec in specs.items():
        problem = malformed(spec.parameters)
        if _NAME.fullmatch(spec.name) is None:
            problem = "its name has 1 to 128 of the characters A-Z a-z 0-9 _ . -"
        if len(spec.description) > MOST_DESCRIPTION:
            problem = f"its description has {MOST_DESCRIPTION} characters at most"
        if problem is not None:
            raise CannotAsk(f"{place}: {problem}")
    return tuple(specs.values())


def _conversation(messages: Sequence[SamplingMessage]) -> Iterator[Item]:
    called: dict[str, str] = {}  # the calls that have no result yet, with the names of their tools
    for place, message in enumerate(messages):
        blocks = message.content_as_list
        if called and message.role != "user":
            raise CannotAsk(f"messages.{place}: the results of {', '.join(called)} come first")
        if message.role == "assistant":
            said = _assistant(blocks, place)
            called = {call.id: call.name for call in said.calls}
            yield said
            continue
        yield from _results(blocks, called, place)
        if called:
            raise CannotAsk(f"messages.{place}: there is no result for {', '.join(called)}")
        rest = [block for block in blocks if not isinstance(block, ToolResultContent)]
        if rest or not blocks:
            yield _user(rest, place)
    if called:
        raise CannotAsk(f"messages: there is no result for {', '.join(called)}")


def _assistant(blocks: Sequence[SamplingMessageContentBlock], place: int) -> AssistantItem:
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        match block:
            case TextContent():
                texts.append(block.text)
            case ToolUseContent():
                calls.append(ToolCall(block.id, block.name, json.dumps(block.input)))
            case _:
                raise CannotAsk(f"messages.{place}: an assistant's message has text and tool_use, not {block.type}")
    if len({call.id for call in calls}) < len(calls):
        raise CannotAsk(f"messages.{place}: two calls have one id")
    return AssistantItem("".join(texts), calls=tuple(calls))


def _results(
    blocks: Sequence[SamplingMessageContentBlock], called: dict[str, str], place: int
) -> Iterator[ToolResultItem]:
    """The results in a user's message, which are taken from what was called."""
    for block in blocks:
        if not isinstance(block, ToolResultContent):
            continue
        name = called.pop(block.tool_use_id, None)
        if name is None:
            raise CannotAsk(f"messages.{place}: there is no call {block.tool_use_id[:100]!r} to which this is a result")
        try:
            result = CallToolResult(
                content=block.content, structured_content=block.structured_content, is_error=bool(block.is_error)
            )
        except ValidationError as exc:
            raise CannotAsk(f"messages.{place}: the result of {name} cannot be read") from exc
        read = to_result(result, MAX_TEXT_CHARACTERS)
        yield ToolResultItem(block.tool_use_id, name, read.text, read.is_error, attachments=read.attachments)


def _user(blocks: Sequence[SamplingMessageContentBlock], place: int) -> UserItem:
    texts: list[str] = []
    attachments: list[Attachment] = []
    for block in blocks:
        match block:
            case TextContent():
                texts.append(block.text)
            case ImageContent():
                attachments.append(Attachment("image", block.mime_type, data=block.data))
            case AudioContent():
                attachments.append(Attachment("audio", block.mime_type, data=block.data))
            case _:
                raise CannotAsk(f"messages.{place}: a user's message has no {block.type}")
    return UserItem("\n".join(texts), tuple(attachments))


def _shown(item: Item) -> str:
    match item:
        case AssistantItem():
            calls = "".join(f"\n{call.name} {call.arguments}" for call in item.calls)
            return f"[{item.kind}] {item.text}{calls}"
        case UserItem():
            kinds = "".join(f" [{one.kind}]" for one in item.attachments)
            return f"[{item.kind}] {item.text}{kinds}"
        case _:
            return f"[{item.kind}] {item.text}"
