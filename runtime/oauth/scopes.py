"""What an access token lets its holder do. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tenuto.sessions.principal import Principal, Role


class Scope(StrEnum):
    """The scopes that mean something here; others are ignored."""

    READ = "tenuto:read"
    """Read what is the principal's own, and what everybody may see."""
    RUN = "tenuto:run"
    """All that an API key can do, reading too."""
    PERSON = "tenuto:person"
    """Besides that: a person stands behind each request."""
    ADMIN = "tenuto:admin"
    """Besides that: it is one who runs this server."""


_ROLES = {Scope.PERSON: Role.PERSON, Scope.ADMIN: Role.ADMIN}


def scope_of(role: Role) -> Scope:
    """The scope that gives a role."""
    return next(scope for scope, given in _ROLES.items() if given is role)


@dataclass(frozen=True, slots=True)
class Grant:
    """A token that was checked: whose it is, what for, and until when it counts, in seconds since 1970."""

    principal: Principal
    scopes: frozenset[Scope]
    expires_at: float

    def allows(self, scope: Scope) -> bool:
        """Whether it is good for that; who may run may read."""
        return scope in self.scopes or (scope is Scope.READ and Scope.RUN in self.scopes)


def understood(names: Iterable[str]) -> frozenset[Scope]:
    """The scopes that mean something here."""
    given = frozenset(names)
    return frozenset(scope for scope in Scope if scope in given)


def roles(scopes: Iterable[Scope]) -> frozenset[Role]:
    """What scopes allow beyond one's own sessions."""
    return frozenset(_ROLES[scope] for scope in scopes if scope in _ROLES)
