"""What clients keep with a session for themselves: a few short texts by name."""

from typing import Annotated

from pydantic import Field

MOST_PAIRS = 16

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=MOST_PAIRS)
]
