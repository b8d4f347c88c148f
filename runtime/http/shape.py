"""What every answer is made of: a typed model that describes it and becomes its bytes, so the two cannot differ."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """The form of an answer, or of a part of one. What is not given is not sent.

    Fields may join a form at any time, so whoever reads one ignores those that it does not know.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    def encode(self) -> bytes:
        """It as JSON, on one line."""
        return self.__pydantic_serializer__.to_json(self, exclude_unset=True)
