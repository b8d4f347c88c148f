"""The names under which servers' tools are shown: a pure function of server and tool, so the same at every start."""

import hashlib
import re

MAX_CHARACTERS = 64
SEPARATOR = "__"

OWN = "tenuto"
"""The server, to clients, of the tools that belong to none: every call that they are shown has a server."""
TOOL_SEARCH = "tool_search"
"""Finds other tools."""
READ_RESOURCE = "read_resource"
"""Reads what results of tools have linked to."""
_OWN = (TOOL_SEARCH, READ_RESOURCE)

_VALID = re.compile(r"[a-zA-Z0-9_-]+")
_HASH_CHARACTERS = 8


def exported_name(server: str, tool: str, attempt: int = 0) -> str:
    """`<server>__<tool>` where that is a valid name that can be read back, else a cut form of it with a hash.

    `attempt` gives other names for the same tool, for the case that a name is taken. Matches [a-zA-Z0-9_-]{1,64}.
    """
    plain = f"{server}{SEPARATOR}{tool}"
    # `a__b` + `c` and `a` + `b__c` would be one name: only the pair that the first separator divides may have it.
    readable = plain.partition(SEPARATOR) == (server, SEPARATOR, tool)
    if attempt == 0 and readable and tool and _VALID.fullmatch(plain) and len(plain) <= MAX_CHARACTERS:
        return plain
    digest = hashlib.sha256(f"{attempt}\0{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    kept = sanitised(plain)[: MAX_CHARACTERS - _HASH_CHARACTERS - 1]
    return f"{kept}_{digest[:_HASH_CHARACTERS]}"


def parted(name: str) -> tuple[str, str]:
    """The server of a tool and the tool's own name, by the name that models see."""
    server, separator, tool = name.partition(SEPARATOR)
    if not separator:
        return (OWN if name in _OWN else name), name
    return server, tool


def called_name(server: str, tool: str) -> str:
    """The name that models see of a tool that a client names by its server: what `parted` has parted."""
    return tool if server == OWN and tool in _OWN else exported_name(server, tool)


def sanitised(name: str) -> str:
    """The name with everything but [a-zA-Z0-9_-] replaced by underscores."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
