"""The clock's texts are those that the embedded model was trained on."""

import datetime as dt
from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.tools.builtin import Clock
from tenuto.tools.spec import CallContext, ToolResult

CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")


def clock_at(*when: int) -> Clock:
    return Clock(now=lambda: datetime(*when, tzinfo=UTC))  # type: ignore[arg-type, misc]  # year, month, day, ...


async def ask(clock: Clock, name: str, **arguments: str) -> ToolResult:
    return await clock.call(name, arguments, CONTEXT)


async def test_now_tells_time_weekday_and_date() -> None:
    clock = clock_at(2026, 11, 21, 14, 5)
    assert await ask(clock, "now", timezone="UTC") == ToolResult("14:05, Saturday 21 November 2026")


async def test_the_date_is_that_of_the_zone() -> None:
    clock = clock_at(2026, 2, 28, 20, 30)
    assert (await ask(clock, "now", timezone="Asia/Tokyo")).text == "05:30, Sunday 1 March 2026"


@pytest.mark.parametrize("name", ["america/new_york", "America/New York", " AMERICA/NEW_YORK "])
async def test_a_zone_is_found_in_any_case_and_with_blanks(name: str) -> None:
    assert (await ask(clock_at(2026, 7, 1, 12, 0), "now", timezone=name)).text == "08:00, Wednesday 1 July 2026"


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [("Tokyo", "Asia/Tokyo"), ("Europe/Berln", "Europe/Berlin"), ("new york", "America/New_York")],
)
async def test_an_unknown_zone_is_an_error_that_names_it_and_one_that_is_close(asked: str, suggested: str) -> None:
    result = await ask(clock_at(2026, 1, 1), "now", timezone=asked)
    assert result.is_error
    assert result.text.startswith(f"Error: there is no time zone {asked!r}; did you mean ")
    assert suggested in result.text


async def test_a_zone_that_resembles_none_gets_an_example() -> None:
    result = await ask(clock_at(2026, 1, 1), "now", timezone="/etc/passwd" * 1000)
    assert result.is_error
    assert "use an IANA name" in result.text
    assert len(result.text) < 200


async def test_convert_uses_the_offsets_of_today() -> None:
    zones = {"from_timezone": "Europe/London", "to_timezone": "America/New_York"}
    assert await ask(clock_at(2026, 1, 10), "convert", time="13:30", **zones) == ToolResult("08:30")
    # Between the two changes to summer time the distance is an hour less.
    assert await ask(clock_at(2026, 3, 20), "convert", time="13:30", **zones) == ToolResult("09:30")


@pytest.mark.parametrize("time", ["25:00", "12:60", "noon", "1230", "", "12:3", "１２:30"])
async def test_a_time_that_is_none_is_an_error(time: str) -> None:
    result = await ask(clock_at(2026, 1, 1), "convert", time=time, from_timezone="UTC", to_timezone="UTC")
    assert result == ToolResult(f"Error: {time!r} is not a time of the form HH:MM", is_error=True)


@given(st.times(), st.sampled_from(sorted(available_timezones())))
async def test_a_time_in_utc_survives_a_conversion_and_back(time: dt.time, there: str) -> None:
    """UTC has no gaps; a zone's own clock may skip an hour, so the way starts and ends in UTC, away from changes."""
    clock = clock_at(2026, 6, 15, 12, 0)
    text = f"{time:%H:%M}"
    out = (await ask(clock, "convert", time=text, from_timezone="UTC", to_timezone=there)).text
    back = (await ask(clock, "convert", time=out, from_timezone=there, to_timezone="UTC")).text
    assert back == text


async def test_its_schemas_are_those_that_the_embedded_model_knows() -> None:
    now, convert = await Clock().list()
    string = {"type": "string"}
    assert (now.spec.name, now.spec.description) == ("now", "Current time in a time zone")
    assert now.spec.parameters == {"type": "object", "properties": {"timezone": string}, "required": ["timezone"]}
    assert list(convert.spec.parameters["properties"]) == ["time", "from_timezone", "to_timezone"]
    assert now.annotations.read_only
    assert convert.annotations.read_only
