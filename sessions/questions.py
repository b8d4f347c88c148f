"""What a server of tools asks a person in the middle of a call, as it is kept and shown. Plain facts."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from tenuto.sessions.items import JsonObject


class QuestionMode(StrEnum):
    """How it is asked."""

    FORM = "form"
    URL = "url"


@dataclass(frozen=True, slots=True)
class Question:
    """A form to fill in (`schema`), or a page to open (`url`); `server` asks it.

    `resume` is what the call needs to go on with the answer in another process; None: it ends with this one.
    """

    server: str
    mode: QuestionMode
    message: str
    schema: JsonObject | None = None
    url: str | None = None
    resume: JsonObject | None = field(default=None, repr=False)

    def told(self) -> JsonObject:
        """What clients and people get to see of it."""
        asked = {"requested_schema": self.schema} if self.mode is QuestionMode.FORM else {"url": self.url}
        return {"server": self.server, "mode": self.mode.value, "message": self.message, **asked}

    def dump(self) -> JsonObject:
        """The stored form."""
        return {**self.told(), "resume": self.resume}

    @classmethod
    def load(cls, kept: dict[str, Any]) -> Self:
        """From the stored form, or from what is told of it."""
        return cls(
            kept["server"],
            QuestionMode(kept["mode"]),
            kept["message"],
            kept.get("requested_schema"),
            kept.get("url"),
            kept.get("resume"),
        )
