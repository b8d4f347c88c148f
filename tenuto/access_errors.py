"""Errors of access tokens, named by what the caller can do about them, as those in `tenuto.errors`."""

from tenuto.errors import Forbidden, TenutoError


class IssuerUnavailable(TenutoError):
    """The keys by which an access token is checked cannot be had now."""

    code = "issuer_unavailable"


class InsufficientScope(Forbidden):
    """Whoever asks may not do this; an access token with `scope` may."""

    def __init__(self, message: str, scope: str) -> None:
        super().__init__(message)
        self.scope = scope
