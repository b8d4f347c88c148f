"""The suite's fixture: resources, prompts and the completion of their arguments."""

import json
from typing import Any

import mcp.types as t
from mcp.shared.exceptions import MCPError

from tests.conformance.asking import ask, form
from tests.conformance.tools import IMAGE, PNG, STRING, embedded, text

TEXTS = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "It is watched.",
}
BINARY = "test://static-binary"
TEMPLATE = "test://template/{id}/data"

PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_resources(_context: Any, _params: Any) -> t.ListResourcesResult:
    kinds = {**dict.fromkeys(TEXTS, "text/plain"), BINARY: "image/png"}
    resources = [
        t.Resource(uri=uri, name=uri.partition("//")[2], description="It stays as it is.", mime_type=kind)
        for uri, kind in kinds.items()
    ]
    return t.ListResourcesResult(resources=resources)


async def list_templates(_context: Any, _params: Any) -> t.ListResourceTemplatesResult:
    template = t.ResourceTemplate(uri_template=TEMPLATE, name="template", mime_type="application/json")
    return t.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_context: Any, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    return t.ReadResourceResult(contents=[_contents(str(params.uri))])


def _contents(uri: str) -> t.TextResourceContents | t.BlobResourceContents:
    if uri in TEXTS:
        return t.TextResourceContents(uri=uri, mime_type="text/plain", text=TEXTS[uri])
    if uri == BINARY:
        return t.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    before, _, after = TEMPLATE.partition("{id}")
    if uri.startswith(before) and uri.endswith(after):
        id = uri.removeprefix(before).removesuffix(after)
        found = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        return t.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(found))
    raise MCPError(code=t.INVALID_PARAMS, message="Resource not found", data={"uri": uri})


async def list_prompts(_context: Any, _params: Any) -> t.ListPromptsResult:
    prompts = [
        t.Prompt(
            name=name,
            description=f"What the suite calls {name}.",
            arguments=[t.PromptArgument(name=argument, required=True) for argument in arguments],
        )
        for name, arguments in PROMPTS.items()
    ]
    return t.ListPromptsResult(prompts=prompts)


async def get_prompt(_context: Any, params: t.GetPromptRequestParams) -> t.GetPromptResult | t.InputRequiredResult:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _prompt(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            said = ", ".join(f"{name}='{given.get(name)}'" for name in PROMPTS[params.name])
            return _prompt(text(f"Prompt with arguments: {said}"))
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return _prompt(resource, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return _prompt(IMAGE, text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            said_so = (params.input_responses or {}).get("user_context")
            if not isinstance(said_so, t.ElicitResult):
                return ask(user_context=form("What context should the prompt use?", context=STRING))
            return _prompt(text(f"In the context of {(said_so.content or {}).get('context')}"))
        case _:
            raise MCPError(code=t.INVALID_PARAMS, message=f"Unknown prompt: {params.name}")


def _prompt(*content: t.ContentBlock) -> t.GetPromptResult:
    return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=each) for each in content])


async def complete(_context: Any, _params: t.CompleteRequestParams) -> t.CompleteResult:
    return t.CompleteResult(completion=t.Completion(values=["paris", "park"], total=2, has_more=False))
