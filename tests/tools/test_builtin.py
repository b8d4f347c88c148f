"""The built-ins as a model sees them: names, descriptions and arguments that the embedded model knows by heart."""

from typing import Any

from tenuto.tools.builtin import Calculator, Clock, Notes
from tenuto.tools.registry import Registry
from tenuto.tools.spec import CallContext

KNOWN = [
    ("calculator__evaluate", "Evaluate an arithmetic expression", ["expression"]),
    ("clock__now", "Current time in a time zone", ["timezone"]),
    ("clock__convert", "Convert a time between time zones", ["time", "from_timezone", "to_timezone"]),
    ("notes__put", "Save a note", ["key", "text"]),
    ("notes__get", "Read a note", ["key"]),
    ("notes__list", "List the notes", []),
]


class NoNotes:
    """Keeps nothing."""

    async def notes(self, principal: str, session: str | None) -> dict[str, str]:
        return {}

    async def put(self, principal: str, session: str | None, key: str, text: str) -> None: ...


def schema(fields: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {field: {"type": "string"} for field in fields}, "required": fields}


async def test_names_descriptions_and_schemas_are_those_that_the_embedded_model_knows() -> None:
    registry = Registry([Calculator(), Clock(), Notes(NoNotes())])
    await registry.refresh()
    seen = [(each.spec.name, each.spec.description, each.spec.parameters) for each in registry.list()]
    assert seen == [(name, description, schema(fields)) for name, description, fields in KNOWN]
    # The keys' order is part of what the model reads.
    assert [list(parameters) for _, _, parameters in seen] == [["type", "properties", "required"]] * 6


async def test_a_missing_argument_is_told_to_the_model() -> None:
    registry = Registry([Clock()])
    await registry.refresh()
    context = CallContext(principal="ann", session=None, run=None, call="call_1")
    result = await registry.call("clock__now", {}, context)
    assert result.is_error
    assert result.text == "Error: the arguments of clock__now are not valid: timezone is missing"
