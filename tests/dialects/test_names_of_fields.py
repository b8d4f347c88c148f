"""What is wrong with a request is told by the name that the field has in the request's own dialect."""

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.slow

USER = [{"role": "user", "content": "a"}]
NOWHERE = {"$ref": "#/nowhere"}
NOBODYS = {"type": "function_call_output", "call_id": "nobodys", "output": "a"}
DEEP: dict[str, Any] = {}
for _ in range(70):
    DEEP = {"not": DEEP}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/responses", {"conversation": ""}, "input"),
        ("/v1/responses", {"conversation": "", "input": [NOBODYS]}, "input"),
        ("/v1/responses/input_tokens", {"conversation": "", "input": [NOBODYS]}, "input"),
        (
            "/v1/responses",
            {"input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": NOWHERE, "strict": True}}},
            "text.format",
        ),
        ("/v1/conversations", {"items": [NOBODYS]}, "items"),
        ("/v1/conversations/{id}/items", {"items": [NOBODYS]}, "items"),
        (
            "/v1/messages",
            {
                "max_tokens": 9,
                "messages": USER,
                "output_config": {"format": {"type": "json_schema", "schema": NOWHERE}},
            },
            "output_config.format",
        ),
        (
            "/v1/messages",
            {"max_tokens": 9, "messages": USER, "tools": [{"name": "f", "input_schema": {"not": DEEP}}]},
            "tools[0].input_schema",
        ),
        ("/api/chat", {"messages": USER, "format": NOWHERE}, "format"),
        ("/api/generate", {"prompt": "a", "format": NOWHERE}, "format"),
    ],
)
def test_a_field_is_named_as_in_the_request(http: httpx.Client, path: str, body: dict[str, Any], field: str) -> None:
    id = http.post("/v1/conversations", json={}).json()["id"]
    named = {"conversation": id} if "conversation" in body else {}
    response = http.post(path.format(id=id), json=body | named)
    told = response.json()
    error = told["error"] if isinstance(told["error"], dict) else told
    assert (response.status_code, error.get("details", error)["param"]) == (400, field), told
