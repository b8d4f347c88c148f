"""The clock: the time in a zone, and a time carried from one zone to another."""

import difflib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from tenuto.tools.builtin.answers import failure, no_such_tool, tool
from tenuto.tools.spec import CallContext, Tool, ToolResult

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
# Spelled out, so that the process's locale cannot change them.
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class Clock:
    """The built-in server `clock`. `now` gives an aware time; tests pass their own."""

    name = "clock"

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._tools = [
            tool("now", "Current time in a time zone", ("timezone",)),
            tool("convert", "Convert a time between time zones", ("time", "from_timezone", "to_timezone")),
        ]

    async def list(self) -> list[Tool]:
        """Both tools, always."""
        return list(self._tools)

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:  # noqa: ARG002
        """Tell or convert a time; a zone or time that cannot be read is an error result."""
        try:
            match name:
                case "now":
                    return ToolResult(self._tell(arguments["timezone"]))
                case "convert":
                    return ToolResult(
                        self._convert(arguments["time"], arguments["from_timezone"], arguments["to_timezone"])
                    )
        except ValueError as exc:
            return failure(str(exc))
        return no_such_tool(self.name, name, self._tools)

    def _tell(self, timezone: str) -> str:
        now = self._now().astimezone(find_zone(timezone))
        return f"{now:%H:%M}, {_DAYS[now.weekday()]} {now.day} {_MONTHS[now.month - 1]} {now.year}"

    def _convert(self, time: str, from_timezone: str, to_timezone: str) -> str:
        """The offsets are those of today in the first zone: a time alone does not say which day is meant."""
        source, target = find_zone(from_timezone), find_zone(to_timezone)
        found = _TIME.fullmatch(time.strip())
        if found is None:
            raise ValueError(f"{time[:40]!r} is not a time of the form HH:MM")
        today = self._now().astimezone(source)
        moment = today.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0, fold=0)
        return f"{moment.astimezone(target):%H:%M}"


def find_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name, in any case and with blanks for underscores.

    Raises:
        ValueError: there is none; the text suggests names that are close.
    """
    # Only names from the list reach ZoneInfo, so that no other file can be opened.
    wanted = _plain(name)
    known = _zones().get(wanted)
    if known is not None:
        return ZoneInfo(known)
    close = _suggestions(wanted[:60])
    hint = f"; did you mean {' or '.join(close)}?" if close else "; use an IANA name such as Europe/Berlin"
    raise ValueError(f"there is no time zone {name[:60]!r}{hint}")


@cache
def _zones() -> dict[str, str]:
    return {_plain(name): name for name in sorted(available_timezones())}


def _plain(name: str) -> str:
    return "_".join(name.split()).casefold()


def _suggestions(wanted: str) -> list[str]:
    """Zones of that city first, then those spelled almost so."""
    zones = _zones()
    cities = [zones[plain] for plain in zones if plain.rpartition("/")[2] == wanted]
    spelled = [zones[plain] for plain in difflib.get_close_matches(wanted, zones, n=3)]
    return list(dict.fromkeys(cities + spelled))[:3]
