"""What the fields of a request are called where the loop's errors call them by the names that chat completions have."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tenuto.errors import InvalidRequest


@contextmanager
def naming(fields: Mapping[str, str]) -> Iterator[None]:
    """Let errors name these fields as their client does."""
    try:
        yield
    except InvalidRequest as error:
        error.param = fields.get(error.param or "", error.param)
        raise
