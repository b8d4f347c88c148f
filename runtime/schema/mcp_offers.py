"""What MCP servers offer besides tools as Tenuto shows it: prompts, resources and their templates."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp_types import CompleteResult, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate
from pydantic import Field

from tenuto.runtime.http.shape import Shape


class ArgumentAnswer(Shape):
    """An argument of a prompt."""

    name: str
    title: str | None
    description: str | None
    required: bool


class PromptAnswer(Shape):
    """A prompt of a server, by the server's own name."""

    object: Literal["mcp.prompt"]
    server: str
    name: str
    title: str | None
    description: str | None
    arguments: list[ArgumentAnswer]


class ResourceAnswer(Shape):
    """A resource that a server lists, by the server's own URI."""

    object: Literal["mcp.resource"]
    server: str
    uri: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None = Field(description="In bytes, where the server tells it.")


class TemplateAnswer(Shape):
    """The form of resources that a server does not list one by one."""

    object: Literal["mcp.resource_template"]
    server: str
    uri_template: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None


class _Page(Shape):
    object: Literal["list"]
    last_id: str | None = Field(description="Pass it as `after` to get the next page.")
    has_more: bool


class PromptsAnswer(_Page):
    """A page of prompts."""

    data: list[PromptAnswer]


class ResourcesAnswer(_Page):
    """A page of resources."""

    data: list[ResourceAnswer]


class TemplatesAnswer(_Page):
    """A page of templates."""

    data: list[TemplateAnswer]


class ContentsAnswer(Shape):
    """One of the contents of a resource: text, or bytes in base64."""

    uri: str
    mime_type: str | None
    text: str | None = None
    blob: str | None = None


class ReadAnswer(Shape):
    """What a resource holds."""

    object: Literal["mcp.resource_contents"]
    server: str
    uri: str
    contents: list[ContentsAnswer]


class MessageAnswer(Shape):
    """A message of a prompt."""

    role: Literal["user", "assistant"]
    content: dict[str, Any] = Field(description="A content block, in MCP's form.")


class FilledAnswer(Shape):
    """A prompt with its arguments."""

    object: Literal["mcp.prompt_messages"]
    server: str
    name: str
    description: str | None
    messages: list[MessageAnswer]


class CompletionAnswer(Shape):
    """How an argument can go on."""

    object: Literal["mcp.completion"]
    values: list[str]
    total: int | None
    has_more: bool


def prompt_answer(server: str, prompt: Prompt) -> PromptAnswer:
    """A prompt as it is shown."""
    arguments = [
        ArgumentAnswer(name=one.name, title=one.title, description=one.description, required=bool(one.required))
        for one in prompt.arguments or ()
    ]
    return PromptAnswer(
        object="mcp.prompt",
        server=server,
        name=prompt.name,
        title=prompt.title,
        description=prompt.description,
        arguments=arguments,
    )


def resource_answer(server: str, resource: Resource) -> ResourceAnswer:
    """A resource as it is shown."""
    return ResourceAnswer(
        object="mcp.resource",
        server=server,
        uri=resource.uri,
        name=resource.name,
        title=resource.title,
        description=resource.description,
        mime_type=resource.mime_type,
        size=resource.size,
    )


def template_answer(server: str, template: ResourceTemplate) -> TemplateAnswer:
    """A template as it is shown."""
    return TemplateAnswer(
        object="mcp.resource_template",
        server=server,
        uri_template=template.uri_template,
        name=template.name,
        title=template.title,
        description=template.description,
        mime_type=template.mime_type,
    )


def read_answer(server: str, uri: str, found: ReadResourceResult) -> ReadAnswer:
    """A resource's contents as they are shown."""
    contents = [
        ContentsAnswer(
            uri=each.uri,
            mime_type=each.mime_type,
            text=getattr(each, "text", None),
            blob=getattr(each, "blob", None),
        )
        for each in found.contents
    ]
    return ReadAnswer(object="mcp.resource_contents", server=server, uri=uri, contents=contents)


def filled_answer(server: str, name: str, found: GetPromptResult) -> FilledAnswer:
    """A prompt's messages as they are shown."""
    messages = [
        MessageAnswer(
            role=message.role, content=message.content.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        for message in found.messages
    ]
    return FilledAnswer(
        object="mcp.prompt_messages", server=server, name=name, description=found.description, messages=messages
    )


def completion_answer(found: CompleteResult) -> CompletionAnswer:
    """A completion as it is shown."""
    told: Sequence[str] = found.completion.values
    return CompletionAnswer(
        object="mcp.completion",
        values=list(told),
        total=found.completion.total,
        has_more=bool(found.completion.has_more),
    )
