"""The public keys of an issuer, by which its tokens are checked. Pure.

A key is good for the algorithms that its own kind has, and for no others: what a token calls its algorithm never makes
a public key a shared secret. https://www.rfc-editor.org/rfc/rfc8725#section-3.1
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

MOST_KEYS = 64
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA",)}
_RSA_BITS = range(2048, 8193)
_TRIED = 4
"""Of the keys that suit a token that names none."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key. `id` is its issuer's name for it."""

    id: str | None
    algorithms: tuple[str, ...]
    key: Any = field(repr=False)


class KeySet:
    """The keys of one issuer at one time."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        entries = document.get("keys")
        entries = entries[:MOST_KEYS] if isinstance(entries, list) else []
        self._keys = [key for entry in entries if (key := _key(entry)) is not None]

    def __len__(self) -> int:
        return len(self._keys)

    def suiting(self, id: str | None, algorithm: str) -> list[PublicKey]:
        """The keys with which a token may be signed that names such a key and algorithm; a few where it names none."""
        found = [key for key in self._keys if algorithm in key.algorithms and (id is None or key.id == id)]
        return found[:_TRIED]


def is_asymmetric(algorithm: str) -> bool:
    """Whether an algorithm is one that any of our keys could be good for."""
    return algorithm in _RSA or any(algorithm in some for some in _CURVES.values())


def _key(entry: Any) -> PublicKey | None:
    """A key of the document; None for one that signs nothing, is a secret, or is too weak."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    suited = _RSA if entry.get("kty") == "RSA" else _CURVES.get(str(entry.get("crv")), ())
    named = entry.get("alg")
    algorithms = tuple(each for each in suited if named in (None, each))
    if not algorithms or "d" in entry or not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        key = jwt.PyJWK(entry, algorithm=algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size not in _RSA_BITS:
        return None
    id = entry.get("kid")
    return PublicKey(id if isinstance(id, str) else None, algorithms, key)
