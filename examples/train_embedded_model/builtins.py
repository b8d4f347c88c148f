"""Requests for the built-in tools, with the calls that they mean and the results that the real tools give."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from train_embedded_model.phrases import phrases, table
from train_embedded_model.pools import Pools
from train_embedded_model.zones import ZONES

from tenuto.tools.builtin.arithmetic import CannotEvaluate, evaluate
from tenuto.tools.builtin.calculator import number_text


def _tool(name: str, description: str, fields: tuple[str, ...]) -> dict[str, Any]:
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SPECS = {
    spec["function"]["name"]: spec
    for spec in (
        _tool("calculator__evaluate", "Evaluate an arithmetic expression", ("expression",)),
        _tool("clock__now", "Current time in a time zone", ("timezone",)),
        _tool("clock__convert", "Convert a time between time zones", ("time", "from_timezone", "to_timezone")),
        _tool("notes__put", "Save a note", ("key", "text")),
        _tool("notes__get", "Read a note", ("key",)),
        _tool("notes__list", "List the notes", ()),
    )
}
"""The built-in tools as the server lists them."""


@dataclass(frozen=True, slots=True)
class Task:
    """A request, its call, the tool's result, and the answer that follows from it. `ability` is what it shows."""

    text: str
    call: tuple[str, dict[str, Any]]
    result: str
    answer: str
    ability: str
    topic: str = ""


class Builtins:
    """Makes tasks. The notes of a conversation are kept in `notes`."""

    def __init__(self, pools: Pools) -> None:
        self.pools, self.rng = pools, pools.rng
        self.notes: dict[str, str] = {}

    def say(self, table: str, name: str, **places: str) -> str:
        """A phrase of a list, its places filled."""
        return self.rng.choice(phrases("builtin", table, name, test=self.pools.test)).format(**places)

    # The calculator

    def calculate(self) -> Task:
        """Arithmetic, as an expression or in words."""
        for _ in range(50):
            text, expression = self._sum() if self.rng.random() < 0.62 else self._expression()
            value = _value(expression)
            if value is not None:
                return self._calculated(text, expression, value)
        raise AssertionError("no expression has a value")

    def calculate_next(self) -> Task:
        """Arithmetic after arithmetic."""
        _, expression = self._expression()
        value = _value(expression) or "Error: division by zero"
        return self._calculated(self.say("compose", "follow_calc", e=expression), expression, value)

    @staticmethod
    def _calculated(text: str, expression: str, value: str) -> Task:
        call = ("calculator__evaluate", {"expression": expression})
        return Task(text, call, value, f"{expression} = {value}.", "calculator", "calculator")

    def _number(self) -> str:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.3:
            return str(rng.randint(0, 20))
        if kind < 0.7:
            return str(rng.randint(10, 999))
        if kind < 0.84:
            return str(rng.randint(1000, 99999))
        if kind < 0.87:
            return f"{rng.randint(1000, 9_999_999):,}"
        if kind < 0.9:
            known: str = rng.choice(tuple(table("builtin")["words"]))
            return known
        return f"{rng.uniform(0, 200):.{rng.choice((1, 1, 2, 3))}f}"

    def _expression(self) -> tuple[str, str]:
        rng = self.rng
        blank = rng.choice((" ", " ", ""))
        operators = ("+", "-", "*", "/") if rng.random() < 0.9 else ("x", "**", "%", "^", "//")

        def op() -> str:
            return blank + rng.choice(operators) + blank

        a, b, c, d = (self._number() for _ in range(4))
        shape = rng.random()
        if shape < 0.5:
            made = f"{a}{op()}{b}"
        elif shape < 0.68:
            made = f"{a}{op()}{b}{op()}{c}"
        elif shape < 0.78:
            made = f"({a}{op()}{b}){op()}{c}"
        elif shape < 0.86:
            made = f"{a}{op()}({b}{op()}{c})"
        elif shape < 0.9:
            made = f"({a}{op()}{b}){op()}({c}{op()}{d})"
        elif shape < 0.93:
            made = f"{a}{op()}{b}{op()}{c}{op()}{d}"
        elif shape < 0.95:
            made = f"-{a}{op()}{b}"
        else:
            made = rng.choice(
                (f"sqrt({a})", f"abs({a}{op()}{b})", f"min({a}, {b})", f"max({a}, {b})", f"round({a}{op()}{b})",
                 f"sqrt({a}){op()}{b}", f"{a}{op()}sqrt({b})", f"max({a}, {b}, {c})", f"min({a}, {b}, {c}, {d})",
                 f"round({a}{op()}{b}, {rng.randint(1, 4)})", f"abs(-{a}{op()}{b})")
            )  # fmt: skip
        return self.say("calculator", "expression", e=made), made

    def _sum(self) -> tuple[str, str]:
        rng = self.rng
        # What people ask most has the most phrasings.
        names = tuple(SUMS)
        counts = [len(phrases("builtin", "calculator", name, test=False)) for name in names]
        name = rng.choices(names, [count**0.7 for count in counts])[0]
        values = {place: self._number() for place in "abcde"}
        if rng.random() < 0.8:
            values |= {place: draw(rng) for place, draw in _USUAL.get(name, {}).items()}
        values |= {"x": f"{rng.uniform(0, 1000):.{rng.choice((1, 2, 3, 4, 5, 6))}f}", "n": str(rng.randint(1, 4))}
        words = {place: self._in_words(value) for place, value in values.items()}
        return self.say("calculator", name, **words), SUMS[name].format(**values)

    def _in_words(self, number: str) -> str:
        """The number, now and then as a word: twenty for 20."""
        words: list[str] = table("builtin")["words"].get(number, [])
        return self.rng.choice(words) if words and self.rng.random() < 0.3 else number

    # The clock

    def now(self, *, follows: bool = False) -> Task:
        """The time in a city, in a zone, or where nobody said."""
        rng = self.rng
        when = _moment(rng)
        kind = rng.random()
        if not follows and kind < 0.13:
            return self._told(self.say("clock", "here"), "UTC", "UTC", when)
        if not follows and kind < 0.2:
            zone = "UTC" if rng.random() < 0.25 else self.pools.text("zone")
            return self._told(self.say("clock", "zone", zone=zone), zone, zone, when)
        city = rng.choice(tuple(ZONES))
        text = (
            self.say("compose", "follow_now", city=city)
            if follows
            else self.say("clock", "now" if kind < 0.75 else "date", city=city)
        )
        return self._told(text.lower() if rng.random() < 0.3 else text, ZONES[city], city, when)

    @staticmethod
    def _told(text: str, zone: str, place: str, when: datetime) -> Task:
        local = when.astimezone(ZoneInfo(zone))
        result = f"{local:%H:%M}, {local:%A} {local.day} {local:%B} {local.year}"
        return Task(text, ("clock__now", {"timezone": zone}), result, f"It is {result} in {place}.", "clock", "now")

    def convert(self) -> Task:
        """A time here as a time there."""
        rng = self.rng
        a, b = rng.sample(tuple(ZONES), 2)
        if rng.random() < 0.12:
            a, b = rng.sample((rng.choice(("UTC", "UTC", "GMT")), b), 2)
        elif rng.random() < 0.1:
            a, b = (ZONES[city] if rng.random() < 0.7 else city for city in (a, b))
        time = self.pools.text("time")
        here, there = ZONES.get(a, a), ZONES.get(b, b)
        when = _moment(rng).astimezone(ZoneInfo(here)).replace(hour=int(time[:2]), minute=int(time[3:]))
        result = f"{when.astimezone(ZoneInfo(there)):%H:%M}"
        arguments = {"time": time, "from_timezone": here, "to_timezone": there}
        text = self.say("clock", "convert", time=time, a=a, b=b)
        if rng.random() < 0.3:
            text = text.lower()
        return Task(text, ("clock__convert", arguments), result, f"{time} in {a} is {result} in {b}.", "clock")

    # The notes

    def key(self) -> str:
        """A name for a note."""
        kind = self.rng.random()
        if kind < 0.6:
            return self.pools.pick("noun")
        if kind < 0.75:
            return f"{self.pools.pick('word')} {self.pools.pick('noun')}"
        return self.pools.pick("word" if kind < 0.9 else "product")

    def put(self) -> Task:
        """A text under a key."""
        rng = self.rng
        key = self.key()
        text = self.pools.text(
            rng.choice(("phrase", "sentence", "sentence", "title", "code", "email", "food", "query", "id"))
        )
        if rng.random() < 0.2:
            text += rng.choice((" and ", ", ", " at ", " - ")) + self.pools.text(
                rng.choice(("phrase", "time", "city", "date"))
            )
        self.notes[key] = text
        request = self.say("notes", "put", key=key, text=text)
        return Task(request, ("notes__put", {"key": key, "text": text}), "saved", f"I saved the note {key}.", "notes")

    def get(self) -> Task:
        """A note that was saved, or one from another day."""
        rng = self.rng
        if self.notes and rng.random() < 0.6:
            key = rng.choice(tuple(self.notes))
            text = self.notes[key]
        else:
            key, text = self.key(), self.pools.text(rng.choice(("phrase", "sentence", "title")))
        request = self.say("notes", "get", key=key)
        return Task(request, ("notes__get", {"key": key}), text, f"The note {key} says: {text}", "notes")

    def list(self) -> Task:
        """All notes."""
        keys = [*self.notes] if self.notes else [self.key() for _ in range(self.rng.choice((0, 1, 2, 3, 4)))]
        listing = ", ".join(dict.fromkeys(keys))
        answer = f"Your notes: {listing}." if keys else "You have no notes."
        return Task(self.say("notes", "list"), ("notes__list", {}), listing or "no notes", answer, "notes")

    def keep(self, key: str, text: str) -> Task:
        """The second half of a request: what was found out is saved."""
        self.notes[key] = text
        return Task("", ("notes__put", {"key": key, "text": text}), "saved", f"I saved the note {key}.", "notes")

    def any_of(self, names: set[str]) -> Callable[[], Task]:
        """A maker of tasks for one of the tools that are there."""
        makers: dict[str, tuple[Callable[[], Task], int]] = {
            "calculator__evaluate": (self.calculate, 14),
            "clock__now": (self.now, 6),
            "clock__convert": (self.convert, 4),
            "notes__put": (self.put, 5),
            "notes__get": (self.get, 4),
            "notes__list": (self.list, 2),
        }
        there = [made for name, made in makers.items() if name in names]
        return self.rng.choices([make for make, _ in there], [weight for _, weight in there])[0]


SUMS = {
    "plus": "{a} + {b}", "minus": "{a} - {b}", "times": "{a} * {b}", "divide": "{a} / {b}",
    "percent": "{b} * {a} / 100", "square": "{a} ** 2", "cube": "{a} ** 3", "power": "{a} ** {b}",
    "root": "sqrt({a})", "half": "{a} / 2", "double": "{a} * 2", "remainder": "{a} % {b}",
    "average": "({a} + {b}) / 2", "average3": "({a} + {b} + {c}) / 3", "sum3": "{a} + {b} + {c}",
    "product3": "{a} * {b} * {c}", "plus_times": "({a} + {b}) * {c}", "times_plus": "{a} * {b} + {c}",
    "minus_times": "({a} - {b}) * {c}", "times_minus": "{a} * {b} - {c}", "plus_divide": "({a} + {b}) / {c}",
    # As people put them
    "discount": "{a} * (1 - {b} / 100)", "raised": "{a} * (1 + {b} / 100)", "share": "{a} / {b} * 100",
    "shared": "{a} / {b}", "each": "{a} * {b}", "proportion": "{b} * {c} / {a}",
    "two_products": "{a} * {b} + {c} * {d}",
    "change": "{a} - {b} * {c}", "sum_over": "({a} + {b}) / {c}", "perimeter": "2 * ({a} + {b})",
    "difference": "abs({a} - {b})", "sum4": "{a} + {b} + {c} + {d}", "sum5": "{a} + {b} + {c} + {d} + {e}",
    "average4": "({a} + {b} + {c} + {d}) / 4", "largest3": "max({a}, {b}, {c})", "largest4": "max({a}, {b}, {c}, {d})",
    "smallest3": "min({a}, {b}, {c})", "smallest4": "min({a}, {b}, {c}, {d})", "round": "round({x}, {n})",
    "round_whole": "round({x})", "root_plus": "sqrt({a}) + {b}", "square_plus": "{a} ** 2 + {b}",
    "two_squares": "{a} ** 2 + {b} ** 2", "negative_plus": "-{a} + {b}", "negative_times": "-{a} * {b}",
    "negative_minus": "-{a} - {b}", "minus_negative": "{a} - -{b}",
    # Parts, multiples and units
    "third": "{a} / 3", "quarter": "{a} / 4", "triple": "{a} * 3", "tenfold": "{a} * 10", "hundredth": "{a} / 100",
    "dozens": "{a} * 12", "months_of_years": "{a} * 12", "years_of_months": "{a} / 12", "days_of_weeks": "{a} * 7",
    "weeks_of_days": "{a} / 7", "hours_of_days": "{a} * 24", "minutes_of_hours": "{a} * 60",
    "hours_of_minutes": "{a} / 60", "seconds_of_minutes": "{a} * 60", "seconds_of_hours": "{a} * 60 * 60",
    "minutes_of_days": "{a} * 24 * 60", "seconds_of_days": "{a} * 24 * 60 * 60", "weeks_of_years": "{a} * 52",
    "thousands": "{a} * 1000", "thousandths": "{a} / 1000", "hundreds": "{a} * 100",
    # Money, measures and what else there is every day
    "plus_minus": "{a} + {b} - {c}", "minus_plus": "{a} - {b} + {c}", "minus_two": "{a} - {b} - {c}",
    "minus_divide": "({a} - {b}) / {c}", "percent_change": "({b} - {a}) / {a} * 100",
    "percent_less": "({a} - {b}) / {a} * 100", "whole_of_percent": "{a} * 100 / {b}",
    "price_before_discount": "{a} / (1 - {b} / 100)", "net_of_gross": "{a} / (1 + {b} / 100)",
    "simple_interest": "{a} * {b} / 100 * {c}", "compound": "{a} * (1 + {b} / 100) ** {c}",
    "tip_split": "{a} * (1 + {b} / 100) / {c}", "discount_many": "{a} * {b} * (1 - {c} / 100)",
    "two_discounts": "{a} * (1 - {b} / 100) * (1 - {c} / 100)", "fahrenheit": "{a} * 9 / 5 + 32",
    "celsius": "({a} - 32) * 5 / 9", "km_of_miles": "{a} * 1.609344", "miles_of_km": "{a} / 1.609344",
    "kilos_of_pounds": "{a} * 0.45359237", "cm_of_inches": "{a} * 2.54", "minutes_of_time": "{a} * 60 + {b}",
    "full_groups": "{a} // {b}", "groups_needed": "-(-{a} // {b})", "triangle": "{a} * {b} / 2",
    "diagonal": "sqrt({a} ** 2 + {b} ** 2)", "fuel_cost": "{a} / 100 * {b} * {c}",
    "ratio_part": "{a} * {b} / ({b} + {c})", "weighted_average": "({a} * {b} + {c} * {d}) / ({a} + {c})",
    "three_quarters": "{a} * 3 / 4", "shared_cents": "round({a} / {b}, 2)",
}  # fmt: skip
"""What is said in words, and the expression that it means."""


def _percent(rng: random.Random) -> str:
    return rng.choice((str(rng.randint(1, 99)), f"{rng.uniform(1, 30):.1f}"))


def _up_to(most: int) -> Callable[[random.Random], str]:
    return lambda rng: str(rng.randint(0, most))


_USUAL: dict[str, dict[str, Callable[[random.Random], str]]] = {
    "square": {"a": _up_to(99)}, "cube": {"a": _up_to(99)}, "power": {"a": _up_to(99), "b": _up_to(12)},
    "percent": {"a": _percent}, "discount": {"b": _percent}, "raised": {"b": _percent},
    "whole_of_percent": {"b": _percent}, "price_before_discount": {"b": _percent}, "net_of_gross": {"b": _percent},
    "simple_interest": {"b": _percent, "c": _up_to(40)}, "compound": {"b": _percent, "c": _up_to(40)},
    "tip_split": {"b": _percent, "c": _up_to(20)}, "discount_many": {"c": _percent},
    "two_discounts": {"b": _percent, "c": _percent},
}  # fmt: skip
"""The numbers that are mostly small, and how: percentages, exponents, years, people at a table."""


def _value(expression: str) -> str | None:
    try:
        value = number_text(evaluate(expression))
    except CannotEvaluate:
        return None
    return value if len(value) <= 24 else None


def _moment(rng: random.Random) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=rng.randint(0, 60 * 24 * 365 * 8))
