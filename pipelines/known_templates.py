"""What is known of the chat templates that come with Tenuto, so that no start finds it out again: a test does. Pure."""

import hashlib

_NOT_LOOKING_BACK = frozenset(
    {
        "e7bef824a865efb392c50bcbb3dc65fd2374322b95c7025bbd0456397b6846e9",  # the embedded model's
        "4395b395ac38b3f53f3002ac8d9e81e726fb7c4b089710a3152d8da921c77527",  # the scripted model's
        "604586fe5257505231fd47df8eebfe925d37b874a1ab6121127dd0a33d825eb9",  # and with switches
    }
)
"""Digests of their texts."""


def is_known_not_to_look_back(template: str) -> bool:
    """Whether a template is one of those that write new messages the same after a long past and after a stand-in."""
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest() in _NOT_LOOKING_BACK
