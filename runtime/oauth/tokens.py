"""Access tokens: JWTs of configured issuers for this server, checked by their issuers' keys.

https://www.rfc-editor.org/rfc/rfc9068#section-4 with the leniencies that common servers need: `typ` may be missing, and
scopes may stand in `scope` or `scp`.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Self

import anyio
import jwt
from anyio.abc import TaskGroup

from tenuto.errors import Unauthenticated
from tenuto.runtime.oauth.issuer import Issuer, Times
from tenuto.runtime.oauth.key_set import PublicKey, is_asymmetric
from tenuto.runtime.oauth.scopes import Grant, roles, understood
from tenuto.sessions.principal import Principal

MOST_CHARACTERS = 16 << 10
_MOST_SUBJECT = 1024
_LEEWAY_S = 30.0
"""Clocks differ."""
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
_REQUIRED = ["iss", "sub", "aud", "exp"]
_OPTIONS: Any = {"require": _REQUIRED, "strict_aud": False}


class Tokens:
    """Checks tokens. An async context manager, entered and left in one task; event-loop thread only.

    `audiences` are this server's own names, one of which a token must be for.
    """

    def __init__(
        self,
        issuers: Sequence[str],
        audiences: Collection[str],
        times: Times | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._urls, self._audiences = tuple(issuers), sorted(audiences)
        self._times, self._clock = times or Times(), clock
        self._issuers: dict[str, Issuer] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Have all keys fetched, without waiting for them."""
        self._tasks = await anyio.create_task_group().__aenter__()
        self._issuers = {url: Issuer(url, self._tasks, self._times, self._clock) for url in self._urls}
        for issuer in self._issuers.values():
            issuer.refresh()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def grant(self, token: str) -> Grant:
        """What a token lets its holder do.

        Raises:
            Unauthenticated: it is no token for this server, or not valid now.
            IssuerUnavailable: the keys of its issuer cannot be had now.
        """
        if len(token) > MOST_CHARACTERS:
            raise _refused("it is too long")
        try:
            header = jwt.get_unverified_header(token)
            claimed = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError) as exc:
            raise _refused("it is no JSON Web Token") from exc
        algorithm, id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not is_asymmetric(algorithm):
            raise _refused("its algorithm is not one that is taken")
        if "crit" in header or not _is_for_access(header.get("typ")) or not (id is None or isinstance(id, str)):
            raise _refused("its header is not that of an access token")
        issuer = self._issuers.get(claimed["iss"]) if isinstance(claimed.get("iss"), str) else None
        if issuer is None:
            raise _refused("its issuer is not one that is taken")
        keys = await issuer.keys(id, algorithm)
        return _grant(self._checked(token, algorithm, keys, issuer.url))

    def _checked(self, token: str, algorithm: str, keys: Sequence[PublicKey], issuer: str) -> dict[str, Any]:
        """Its claims."""
        why = "its issuer has no such key"
        for each in keys:
            try:
                return jwt.decode(
                    token,
                    each.key,
                    algorithms=[algorithm],
                    audience=self._audiences,
                    issuer=issuer,
                    leeway=_LEEWAY_S,
                    options=_OPTIONS,
                )
            except jwt.InvalidSignatureError:
                why = "its signature is wrong"
            except jwt.ExpiredSignatureError as exc:
                raise _refused("it has expired") from exc
            except jwt.ImmatureSignatureError as exc:
                raise _refused("it is not valid yet") from exc
            except jwt.InvalidAudienceError as exc:
                raise _refused(f"it is not for this server, which is {self._audiences[0]}") from exc
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as exc:
                raise _refused("its claims are not those of an access token") from exc
        raise _refused(why)


def _grant(claims: dict[str, Any]) -> Grant:
    subject, expires_at = claims["sub"], claims["exp"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _MOST_SUBJECT:
        raise _refused("it has no subject")
    scopes = understood(_names(claims.get("scope")) | _names(claims.get("scp")))
    return Grant(Principal(principal_id(claims["iss"], subject), roles(scopes)), scopes, float(expires_at) + _LEEWAY_S)


def principal_id(issuer: str, subject: str) -> str:
    """Who somebody is whom an issuer knows by a subject: another one at each issuer."""
    digest = hashlib.sha256(f"{issuer}\0{subject}".encode("utf-8", "surrogatepass"))
    return f"oauth-{digest.hexdigest()[:32]}"


def _names(value: object) -> set[str]:
    if isinstance(value, str):
        return set(value.split())
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def _is_for_access(kind: object) -> bool:
    return (kind.lower() if isinstance(kind, str) else kind) in _TYPES


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"this access token is not taken: {why}", presented=True)
