"""The API as an OpenAPI document: each route says what it takes and gives, and the wire models are its schemas. No I/O.

https://spec.openapis.org/oas/v3.1.0
"""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tenuto import __version__
from tenuto.errors import BodyTooLarge, Forbidden, InvalidRequest, TenutoError, Unauthenticated
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.http.errors import ErrorForm
from tenuto.runtime.http.routes import EVENTS, Doc, DocumentedRoute, Json, Parameter, Stream

EVERYWHERE: tuple[type[TenutoError], ...] = (TenutoError, InvalidRequest, Forbidden, BodyTooLarge)
"""What any request may be answered with: by the middleware, or where the server itself is at fault."""

_DESCRIPTION = (
    "A local model with sessions and tools, in the dialects that clients speak. Where keys are set, every request but"
    " those to /health and /ready carries `Authorization: Bearer KEY`. The errors of a dialect have one form. The MCP"
    " endpoint at /mcp describes itself."
)
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REFERENCES = "#/components/schemas/{model}"


def document(dialects: Iterable[Dialect]) -> Json:
    """The OpenAPI document of all of their routes that are documented.

    It has room for one operation of a path and method: where several dialects have it, that is the one whose requests
    need no mark.
    """
    documented = [
        (route, dialect.errors)
        for dialect in sorted(dialects, key=lambda one: bool(one.marks))
        for route in dialect.routes
        if isinstance(route, DocumentedRoute)
    ]
    shapes = _Shapes([route.doc for route, _ in documented], [errors for _, errors in documented])
    paths: dict[str, Json] = {}
    for route, errors in documented:
        path = _PATH_PARAMETER.sub(r"{\1}", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {}).setdefault(method.lower(), _operation(route, method, errors, shapes))
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
        "tags": [{"name": tag} for tag in dict.fromkeys(route.doc.tag for route, _ in documented)],
    }


class _Shapes:
    """The schemas of all wire models that the routes name, and of those within them, under names that differ."""

    def __init__(self, docs: Sequence[Doc], errors: Sequence[ErrorForm]) -> None:
        wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
            (form.shape, "serialization"): None for form in errors
        }
        for doc in docs:
            streamed = () if doc.events is None else doc.events.data
            answers = (doc.answer, *doc.also.values(), *streamed)
            wanted |= {(answer, "serialization"): None for answer in answers if answer}
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


def _operation(route: DocumentedRoute, method: str, errors: ErrorForm, shapes: _Shapes) -> Json:
    doc = route.doc
    operation: Json = {
        "tags": [doc.tag],
        "summary": doc.summary,
        "operationId": _operation_id(method, route.path),
        "responses": {"200": _success(doc, errors, shapes), **_failures(doc, errors, shapes)},
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


def _success(doc: Doc, form: ErrorForm, shapes: _Shapes) -> Json:
    schema = {"type": "string"} if doc.answer is None else shapes.answer(doc.answer)
    content: Json = {media_type: {"schema": schema} for media_type in doc.media_types}
    if doc.events is not None:
        streamed = _event if doc.events.media_type == EVENTS else _stream_line
        content[doc.events.media_type] = {"schema": streamed(doc.events, form, shapes)}
    return {"description": doc.summary, "content": content}


def _event(stream: Stream, form: ErrorForm, shapes: _Shapes) -> Json:
    """One event of a stream, its fields as they stand on its lines; who reads streams by a schema expects it so.

    A failure once the stream has begun is an event too.
    """
    data: Json = {"type": "string"}
    if stream.data:
        forms = [shapes.answer(model) for model in (*stream.data, form.shape)]
        data |= {"contentMediaType": "application/json", "contentSchema": {"anyOf": forms}}
    if stream.last is not None:
        data = {"anyOf": [data, {"const": stream.last}]}
    return {
        "type": "object",
        "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": data},
        "required": ["data"],
        "description": stream.description,
    }


def _stream_line(stream: Stream, form: ErrorForm, shapes: _Shapes) -> Json:
    """One line of a stream. A failure once it has begun is a line too."""
    forms = [shapes.answer(model) for model in (*stream.data, form.shape)]
    return {"anyOf": forms, "description": stream.description}


def _failures(doc: Doc, form: ErrorForm, shapes: _Shapes) -> Json:
    """The errors by status, each with the classes that have it."""
    raised = dict.fromkeys((*EVERYWHERE, *(() if doc.public else (Unauthenticated,)), *doc.errors))
    by_status: dict[int, list[type[TenutoError]]] = {}
    for error in raised:
        by_status.setdefault(form.entry(error).status, []).append(error)
    failures: Json = {
        str(status): {"description": _said_of(errors), "content": _json(shapes.answer(form.shape))}
        for status, errors in by_status.items()
    }
    for status, model in doc.also.items():
        failures[str(status)] = {"description": HTTPStatus(status).phrase, "content": _json(shapes.answer(model))}
    return dict(sorted(failures.items()))


def _said_of(errors: Sequence[type[TenutoError]]) -> str:
    """What the classes say of themselves; the base class only where there is nothing better to say."""
    told = [error for error in errors if error is not TenutoError]
    if not told:
        return "Internal error; the server's log has the details."
    return " ".join((error.__doc__ or "").partition("\n")[0] for error in told)


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
