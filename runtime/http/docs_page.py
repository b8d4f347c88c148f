"""/openapi.json and /docs: the API's description for programs, and the same as one page for people.

The page loads nothing from anywhere: many who read it have no network.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tenuto.runtime.http.routes import Json

T = TypeVar("T")

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #8889; --code: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; } h3 { margin-top: 2rem; }
h3 a { color: inherit; text-decoration: none; } h3 a:hover { text-decoration: underline; }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: var(--code); border-radius: 4px; }
code { padding: 1px 4px; } pre { padding: .7rem; overflow-x: auto; } pre code { background: none; padding: 0; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .3rem .6rem;
border-bottom: 1px solid var(--line); } .method { font-weight: 700; } nav ul { columns: 2;
list-style: none; padding: 0; }
details { margin: .5rem 0; } summary { cursor: pointer; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class DocsApi:
    """The endpoints. `describe` gives the document; it is asked once, in a thread, since that takes long."""

    describe: Callable[[], Json]
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    @cached_property
    def _document(self) -> Json:
        return self.describe()

    @cached_property
    def _encoded(self) -> bytes:
        return to_json(self._document)

    async def document(self, request: Request) -> Response:
        """The OpenAPI document."""
        del request
        return Response(await self._made(lambda: self._encoded), media_type="application/json")

    async def page(self, request: Request) -> Response:
        """The page; its examples name the server as it was asked for."""
        url = str(request.base_url).rstrip("/")
        text = await self._made(lambda: page(self._document, url))
        return HTMLResponse(text, headers={"content-security-policy": _POLICY})

    async def _made(self, make: Callable[[], T]) -> T:
        async with self._lock:
            return await anyio.to_thread.run_sync(make)


def page(document: Json, url: str) -> str:
    """A whole HTML page of an OpenAPI document, with examples for the server at `url`."""
    info = document["info"]
    operations = [
        (path, method, operation) for path, item in document["paths"].items() for method, operation in item.items()
    ]
    sections = "".join(_section(tag["name"], operations, document, url) for tag in document["tags"])
    shapes = "".join(_shape(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    links = "".join(
        f'<li><a href="#{op["operationId"]}"><code>{method.upper()} {escape(path)}</code></a></li>'
        for path, method, op in operations
    )
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{_words(info['description'])}</p>"
        '<p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"<nav><ul>{links}</ul></nav>{sections}<h2>Shapes</h2>{shapes}</body></html>"
    )


def _section(tag: str, operations: list[tuple[str, str, Json]], document: Json, url: str) -> str:
    of_tag = [each for each in operations if each[2]["tags"] == [tag]]
    return f"<h2>{escape(tag)}</h2>" + "".join(_operation(*each, document=document, url=url) for each in of_tag)


def _operation(path: str, method: str, operation: Json, *, document: Json, url: str) -> str:
    anchor = operation["operationId"]
    parts = [
        f'<h3 id="{anchor}"><a href="#{anchor}"><code><span class="method">{method.upper()}</span>'
        f" {escape(path)}</code></a></h3>"
        f"<p>{_words(operation['summary'])}. {_words(operation.get('description', ''))}</p>"
    ]
    parts.append(f"<pre><code>{escape(curl(url, path, method, operation))}</code></pre>")
    if parameters := operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}</td><td>{_type(each['schema'])}</td>"
            f"<td>{_words(each['description'])}</td></tr>"
            for each in parameters
        )
        parts.append(f"<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>{rows}</table>")
    if body := operation.get("requestBody"):
        schema = body["content"]["application/json"]["schema"]
        parts.append(f"<p>Body: {_type(schema)}{'' if body['required'] else ', or none'}</p>")
        parts.append(_fields(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]))
    parts.append(_answers(operation["responses"]))
    return "".join(parts)


def curl(url: str, path: str, method: str, operation: Json) -> str:
    """A command to copy. What stands in capitals in a path is to be filled in."""
    filled = re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), path)
    command = f"curl {url}{filled}" if method == "get" else f"curl -X {method.upper()} {url}{filled}"
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "example" in content:
        text = json.dumps(content["example"], ensure_ascii=False).replace("'", "'\\''")
        command += f" \\\n  -H 'Content-Type: application/json' \\\n  -d '{text}'"
    return command


def _answers(responses: Json) -> str:
    rows = ""
    for status, response in responses.items():
        kinds = ", ".join(
            f"{_type(content['schema'])} <code>{escape(media)}</code>" for media, content in response["content"].items()
        )
        stream = _stream(response["content"].get("text/event-stream", {}).get("schema", {}))
        rows += f"<tr><td>{status}</td><td>{kinds}</td><td>{_words(response['description'])} {stream}</td></tr>"
    return f"<details><summary>Answers</summary><table>{rows}</table></details>"


def _stream(event: Json) -> str:
    """What a stream's events are, and the shapes of their data."""
    data = event.get("properties", {}).get("data", {})
    forms = [form["contentSchema"] for form in (data, *data.get("anyOf", ())) if "contentSchema" in form]
    return _words(event.get("description", "")) + "".join(f" Data: {_type(form)}." for form in forms)


def _shape(name: str, schema: Json) -> str:
    about = _words(schema.get("description", ""))
    return f'<h3 id="shape-{escape(name)}"><code>{escape(name)}</code></h3><p>{about}</p>{_fields(schema)}'


def _fields(schema: Json) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if name in required else ''}</td><td>{_type(field)}</td>"
        f"<td>{_words(field.get('description', '')) if isinstance(field, dict) else ''}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table><tr><th>Field (* needed)</th><th>Type</th><th></th></tr>{rows}</table>" if rows else ""


def _type(schema: Any) -> str:
    """A schema in a few words, with links to the shapes that it names."""
    if not isinstance(schema, dict):
        return "anything"
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#shape-{name}"><code>{name}</code></a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[several]))
    if "enum" in schema or "const" in schema:
        return ", ".join(
            f"<code>{escape(json.dumps(each))}</code>" for each in schema.get("enum", [schema.get("const")])
        )
    kind = escape(str(schema.get("type", "anything")))
    if kind == "array":
        return f"list of {_type(schema.get('items', True))}"
    bounds = [
        f"{word} {escape(str(schema[key]))}"
        for key, word in (("minimum", "from"), ("maximum", "to"), ("minLength", "length from"), ("pattern", "like"))
        if key in schema
    ]
    return " ".join([kind, *bounds])


def _words(text: str) -> str:
    """Text for people, with what stands between backticks as code."""
    return _SPAN.sub(r"<code>\1</code>", escape(text))
