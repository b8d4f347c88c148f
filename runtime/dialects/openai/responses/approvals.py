"""The names of approvals: what is asked of a person has an id of ours, and one of this dialect's on the wire. Pure."""

from tenuto.errors import NotFound

_OURS, _WIRE = "appr_", "mcpr_"


def request_id(pause_id: str) -> str:
    """The id of an approval request."""
    return _WIRE + pause_id.removeprefix(_OURS)


def pause_id(request_id: str) -> str:
    """The id of what it asks. Raises NotFound where it is none of ours."""
    if not request_id.startswith(_WIRE):
        raise NotFound("approval", request_id)
    return _OURS + request_id.removeprefix(_WIRE)
