"""The suite's fixture: tools that ask the client for something, while they wait (older protocol) or by their result."""

import json
from typing import Any

import mcp.types as t

from tests.conformance.tools import STRING, Result, result, text, tool

# Until 2025-11-25.


@tool("test_sampling", {"type": "object", "properties": {"prompt": STRING}, "required": ["prompt"]})
async def sample_now(context: Any, params: t.CallToolRequestParams) -> Result:
    asked = t.SamplingMessage(role="user", content=text((params.arguments or {})["prompt"]))
    said = await context.session.create_message(messages=[asked], max_tokens=100, related_request_id=context.request_id)
    return result(text(f"LLM response: {said.content.text}"))


async def _elicit(context: Any, message: str, **properties: Any) -> Result:
    schema = {"type": "object", "properties": properties}
    said = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return result(text(f"User response: action={said.action}, content={json.dumps(said.content)}"))


@tool("test_elicitation", {"type": "object", "properties": {"message": STRING}, "required": ["message"]})
async def elicit_now(context: Any, params: t.CallToolRequestParams) -> Result:
    return await _elicit(context, (params.arguments or {})["message"], username=STRING, email=STRING)


@tool("test_elicitation_sep1034_defaults")
async def elicit_with_defaults(context: Any, _params: t.CallToolRequestParams) -> Result:
    return await _elicit(
        context,
        "A form with defaults",
        name={**STRING, "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={**STRING, "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )


def _titled(*values: str) -> list[dict[str, str]]:
    return [{"const": value, "title": value.title()} for value in values]


@tool("test_elicitation_sep1330_enums")
async def elicit_choices(context: Any, _params: t.CallToolRequestParams) -> Result:
    return await _elicit(
        context,
        "A form with choices",
        untitledSingle={**STRING, "enum": ["option1", "option2"]},
        titledSingle={**STRING, "oneOf": _titled("value1", "value2")},
        legacyEnum={**STRING, "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
        untitledMulti={"type": "array", "items": {**STRING, "enum": ["a", "b"]}},
        titledMulti={"type": "array", "items": {"anyOf": _titled("v1", "v2")}},
    )


# Since 2026-07-28.


def form(message: str, **properties: Any) -> t.ElicitRequest:
    """A form of which all must be filled in."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return t.ElicitRequest(params=t.ElicitRequestFormParams(message=message, requested_schema=schema))


def _question(asked: str, max_tokens: int) -> t.CreateMessageRequest:
    messages = [t.SamplingMessage(role="user", content=text(asked))]
    return t.CreateMessageRequest(params=t.CreateMessageRequestParams(messages=messages, max_tokens=max_tokens))


def ask(state: str | None = None, **requests: Any) -> t.InputRequiredResult:
    """What is wanted of the client, by keys of ours."""
    return t.InputRequiredResult(input_requests=requests, request_state=state)


def _name() -> t.ElicitRequest:
    return form("What is your name?", name=STRING)


def _answers(params: t.CallToolRequestParams) -> dict[str, Any]:
    return {**(params.input_responses or {})}


@tool("test_input_required_result_elicitation")
@tool("test_streaming_elicitation")
async def elicit(_context: Any, params: t.CallToolRequestParams) -> Result:
    said = _answers(params).get("user_name")
    name = (said.content or {}).get("name") if isinstance(said, t.ElicitResult) and said.action == "accept" else None
    return result(text(f"Hello, {name}!")) if isinstance(name, str) else ask(user_name=_name())


@tool("test_input_required_result_sampling")
async def sample(_context: Any, params: t.CallToolRequestParams) -> Result:
    said = _answers(params).get("capital_question")
    if said is None:
        return ask(capital_question=_question("What is the capital of France?", 100))
    return result(text(said.content.text))


@tool("test_input_required_result_list_roots")
async def list_roots(_context: Any, params: t.CallToolRequestParams) -> Result:
    said = _answers(params).get("client_roots")
    return ask(client_roots=t.ListRootsRequest()) if said is None else result(text(f"{len(said.roots)} roots"))


@tool("test_input_required_result_request_state")
@tool("test_input_required_result_tampered_state")
async def confirm(_context: Any, params: t.CallToolRequestParams) -> Result:
    if params.request_state == "asked" and "confirm" in _answers(params):
        return result(text("state-ok"))
    return ask("asked", confirm=form("Please confirm", ok={"type": "boolean"}))


@tool("test_input_required_result_multiple_inputs")
async def ask_for_several(_context: Any, params: t.CallToolRequestParams) -> Result:
    if {"user_name", "greeting", "client_roots"} <= _answers(params).keys():
        return result(text("all are here"))
    return ask(
        "asked", user_name=_name(), greeting=_question("Generate a greeting", 50), client_roots=t.ListRootsRequest()
    )


@tool("test_input_required_result_multi_round")
async def ask_twice(_context: Any, params: t.CallToolRequestParams) -> Result:
    said, state = _answers(params), params.request_state
    if state == "second" and "step2" in said:
        return result(text("both rounds done"))
    if state == "first" and "step1" in said:
        return ask("second", step2=form("Step 2: What is your favorite color?", color=STRING))
    return ask("first", step1=form("Step 1: What is your name?", name=STRING))


@tool("test_input_required_result_capabilities")
async def ask_what_can_be_asked(context: Any, _params: t.CallToolRequestParams) -> Result:
    capabilities = context.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["greeting"] = _question("hi", 10)
    if capabilities is not None and capabilities.elicitation is not None:
        requests["user_name"] = _name()
    return ask("asked", **requests)
