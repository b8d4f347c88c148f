"""Who asks: the holder of a key, or this machine's own user. Sessions belong to one, their ids are unique within it."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a principal is allowed beyond its own sessions."""

    PERSON = "person"
    """A person stands behind each request: what they call themselves, they have approved."""
    ADMIN = "admin"
    """They run this server: they see what its programs write, and why one of them fails."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is behind a request. The store keeps the `id` alone; roles are those of the key that was used."""

    id: str
    roles: frozenset[Role] = frozenset()

    @property
    def is_person(self) -> bool:
        """Whether what it asks for itself has a person's word."""
        return Role.PERSON in self.roles

    @property
    def is_admin(self) -> bool:
        """Whether it may see what concerns the server, not only itself."""
        return Role.ADMIN in self.roles


LOCAL = Principal("local", frozenset(Role))
"""This machine's own user: on a loopback address without keys, by stdio, and by the data folder's secret."""
