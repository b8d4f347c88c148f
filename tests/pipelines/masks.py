"""Which tokens a mask lets through."""

from collections.abc import Iterable

from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import Constraint


def lets(mask: Bitmask | None, token: int) -> bool:
    """Whether a token is allowed; without a mask all are."""
    return mask is None or bool(mask[token // 32] >> (token % 32) & 1)


def passed(constraint: Constraint, tokens: Iterable[int]) -> list[int]:
    """Those tokens that a grammar lets through, up to the first that it does not, taken one after the other."""
    taken: list[int] = []
    for token in tokens:
        if not lets(constraint.mask(), token):
            break
        constraint.accept(token)
        taken.append(token)
    return taken
