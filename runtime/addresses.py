"""Which hosts are this machine itself. Pure: no name is resolved."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host's name or address can only be this machine. Case, brackets and a final dot do not matter."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761 gives all of these to the machine itself
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
