"""Which addresses a server that a request brings may have. Pure: no name is resolved here.

The tables are those of the registries of special addresses:
https://www.iana.org/assignments/iana-ipv4-special-registry and .../iana-ipv6-special-registry
"""

import ipaddress
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Egress(StrEnum):
    """Which servers requests may bring by their URLs: none, those on the public internet, or any."""

    OFF = "off"
    PUBLIC = "public"
    ALL = "all"


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, text.split()))


_NOT_PUBLIC = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24"
    " 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
    # By this address Azure gives its machines what other clouds give theirs by a link-local one.
    " 168.63.129.16/32"
    " 2001::/23 2001:db8::/32 3fff::/20"
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""Of IPv6, nothing else is routed on the internet."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_WEB = (80, 443)
_FIRST_FREE_PORT = 1024
"""Below it, almost all ports are those of other protocols."""


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet. One that holds another is as public as that."""
    if "%" in address:  # a zone makes it one of a link
        return False
    ip = ipaddress.ip_address(address)
    if isinstance(ip, IPv6Address):
        held = _held(ip)
        if held is not None:
            return is_public(str(held))
        if ip not in _PUBLIC_6:
            return False
    return not any(ip in network for network in _NOT_PUBLIC)


def problem_of_addresses(egress: Egress, addresses: Iterable[str]) -> str | None:
    """Why a host with these addresses is not called; None where it may be.

    All of them must be allowed: a host that is both inside and outside is not one to trust. The words do not tell
    the addresses, which are nobody's business.
    """
    if egress is Egress.ALL or (egress is Egress.PUBLIC and all(map(is_public, addresses))):
        return None
    return f"its address is not one of the public internet, and this server was started with --egress {egress}"


def problem_of_port(egress: Egress, port: int) -> str | None:
    """Why nothing is called at a port; None where it may be."""
    if egress is Egress.PUBLIC and port < _FIRST_FREE_PORT and port not in _WEB:
        return f"port {port} is one of another protocol, and this server was started with --egress public"
    return None


def _held(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which packets for this one go in the end."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour
