"""Reading query strings: whole numbers and switches, with errors that name the parameter."""

from starlette.requests import Request

from tenuto.errors import InvalidRequest


def number(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        InvalidRequest: it is none, or out of bounds.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    # `int` takes time by the square of the length.
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise InvalidRequest(f"{name}: must be a whole number from {least} to {most}", name)
    return int(text)


def switch(request: Request, name: str) -> bool:
    """Whether a parameter is `1` or `true`; absent, `0` and `false` are off.

    Raises:
        InvalidRequest: it is something else.
    """
    text = request.query_params.get(name, "0").lower()
    if text not in ("0", "1", "true", "false"):
        raise InvalidRequest(f"{name}: must be 1 or 0", name)
    return text in ("1", "true")
