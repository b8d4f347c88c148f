"""The API as an OpenAPI document: each route says what it takes and gives, and the wire models are its schemas. No I/O.

https://spec.openapis.org/oas/v3.1.0
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.routing import Route

from tenuto import __version__
from tenuto.errors import BodyTooLarge, Forbidden, InvalidRequest, TenutoError, Unauthenticated
from tenuto.runtime.http.answers import ErrorAnswer
from tenuto.runtime.http.errors import OPENAI, Endpoint, wire_error

Json = dict[str, Any]

EVERYWHERE: tuple[type[TenutoError], ...] = (TenutoError, InvalidRequest, Forbidden, BodyTooLarge)
"""What any request may be answered with: by the middleware, or where the server itself is at fault."""

_DESCRIPTION = (
    "A local model with sessions and tools, as OpenAI's clients speak to it. Where keys are set, every request but"
    " /health and /ready carries `Authorization: Bearer KEY`. Errors have one form everywhere. The MCP endpoint at /mcp"
    " describes itself."
)
_EVENT: Json = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
"""One event of a stream, its fields as they stand on its lines; those who read streams by their schema expect it so."""
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REFERENCES = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query, a header, or one of the path that has more to say than its name."""

    name: str
    schema: Json
    description: str
    place: Literal["query", "header", "path"] = "query"


@dataclass(frozen=True, slots=True)
class Doc:
    """What a route takes and gives.

    `answer` None: text of `media_types`. `events` describes the stream of server-sent events that it may answer with.
    `errors` are the classes that it raises besides those of every route; `also` are other answers by status. With
    `public`, no key is needed.
    """

    tag: str
    summary: str
    answer: type[BaseModel] | None
    description: str = ""
    media_types: tuple[str, ...] = ("application/json",)
    body: type[BaseModel] | None = None
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[type[TenutoError], ...] = ()
    events: str | None = None
    also: Mapping[int, type[BaseModel]] = field(default_factory=dict)
    public: bool = False
    example: Json | None = None
    """A body that a client may send as it is."""


class DocumentedRoute(Route):
    """A route with its documentation."""

    def __init__(self, path: str, endpoint: Endpoint, methods: Sequence[str], doc: Doc) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.doc = doc


def document(routes: Iterable[Route]) -> Json:
    """The OpenAPI document of all of these routes that are documented."""
    documented = [route for route in routes if isinstance(route, DocumentedRoute)]
    shapes = _Shapes([route.doc for route in documented])
    paths: dict[str, Json] = {}
    for route in documented:
        path = _PATH_PARAMETER.sub(r"{\1}", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(route, method, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenuto",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": shapes.definitions,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.doc.tag for route in documented)],
    }


class _Shapes:
    """The schemas of all wire models that the routes name, and of those within them, under names that differ."""

    def __init__(self, docs: Sequence[Doc]) -> None:
        wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(ErrorAnswer, "serialization"): None}
        for doc in docs:
            wanted |= {(answer, "serialization"): None for answer in (doc.answer, *doc.also.values()) if answer}
            if doc.body is not None:
                wanted[doc.body, "validation"] = None
        self._references, schemas = models_json_schema(list(wanted), ref_template=_REFERENCES)
        self.definitions: Json = schemas["$defs"]

    def body(self, model: type[BaseModel]) -> Json:
        """A reference to what a client sends."""
        return self._references[model, "validation"]

    def answer(self, model: type[BaseModel]) -> Json:
        """A reference to what it gets."""
        return self._references[model, "serialization"]


def _operation(route: DocumentedRoute, method: str, shapes: _Shapes) -> Json:
    doc = route.doc
    operation: Json = {
        "tags": [doc.tag],
        "summary": doc.summary,
        "operationId": _operation_id(method, route.path),
        "responses": {"200": _success(doc, shapes), **_failures(doc, shapes)},
    }
    if doc.description:
        operation["description"] = doc.description
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if doc.body is not None:
        content: Json = {"schema": shapes.body(doc.body)}
        if doc.example is not None:
            content["example"] = doc.example
        operation["requestBody"] = {"required": doc.body_required, "content": {"application/json": content}}
    if doc.public:
        operation["security"] = []
    return operation


def _operation_id(method: str, path: str) -> str:
    words = re.findall(r"\w+", _PATH_PARAMETER.sub(r"by_\1", path))
    return "_".join([method.lower(), *words])


def _parameters(route: DocumentedRoute) -> list[Json]:
    told = {parameter.name: parameter for parameter in route.doc.parameters if parameter.place == "path"}
    in_path = [
        told.get(name) or Parameter(name, {"type": "string", "minLength": 1}, "Its id.", "path")
        for name in _PATH_PARAMETER.findall(route.path)
    ]
    others = [parameter for parameter in route.doc.parameters if parameter.place != "path"]
    return [
        {
            "name": each.name,
            "in": each.place,
            "required": each.place == "path",
            "description": each.description,
            "schema": each.schema,
        }
        for each in (*in_path, *others)
    ]


def _success(doc: Doc, shapes: _Shapes) -> Json:
    schema = {"type": "string"} if doc.answer is None else shapes.answer(doc.answer)
    content: Json = {media_type: {"schema": schema} for media_type in doc.media_types}
    if doc.events is not None:
        content["text/event-stream"] = {"schema": {**_EVENT, "description": doc.events}}
    return {"description": doc.summary, "content": content}


def _failures(doc: Doc, shapes: _Shapes) -> Json:
    """The errors by status, each with the classes that have it."""
    raised = dict.fromkeys((*EVERYWHERE, *(() if doc.public else (Unauthenticated,)), *doc.errors))
    by_status: dict[int, list[type[TenutoError]]] = {}
    for error in raised:
        by_status.setdefault(wire_error(OPENAI, error).status, []).append(error)
    failures: Json = {
        str(status): {"description": _said_of(errors), "content": _json(shapes.answer(ErrorAnswer))}
        for status, errors in by_status.items()
    }
    for status, model in doc.also.items():
        failures[str(status)] = {"description": HTTPStatus(status).phrase, "content": _json(shapes.answer(model))}
    return dict(sorted(failures.items()))


def _said_of(errors: Sequence[type[TenutoError]]) -> str:
    """What the classes say of themselves; the base class only where there is nothing better to say."""
    told = [error for error in errors if error is not TenutoError]
    if not told:
        return "Something went wrong in the server; its log says what."
    return " ".join((error.__doc__ or "").partition("\n")[0] for error in told)


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
