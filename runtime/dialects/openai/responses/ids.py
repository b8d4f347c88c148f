"""The ids of responses: that of a leg with this dialect's prefix. Pure."""

_PREFIX = "resp_"


def response_id(leg_id: str) -> str:
    """The id of the response that a leg makes."""
    return _PREFIX + leg_id


def leg_id(response_id: str) -> str:
    """The id of the leg that makes a response; what is no response's id is no leg's either."""
    return response_id.removeprefix(_PREFIX) if response_id.startswith(_PREFIX) else ""
