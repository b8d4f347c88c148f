"""Muon for matrices: the direction of the momentum, made orthogonal by Newton and Schulz's iteration.

Keller Jordan and others, 2024: https://kellerjordan.github.io/posts/muon/
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5


class Muon:
    """Matrices of one shape are stepped together."""

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float = 0.01, momentum: float = 0.95) -> None:
        self._groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for parameter in parameters:
            self._groups.setdefault(tuple(parameter.shape), []).append(parameter)
        self._momenta = {
            shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self._groups.items()
        }
        self._decay, self._momentum = decay, momentum

    def state(self) -> dict[str, Any]:
        """The momenta, for a checkpoint."""
        return {str(shape): momentum for shape, momentum in self._momenta.items()}

    def load(self, state: dict[str, Any]) -> None:
        """Take the momenta of a checkpoint."""
        for shape, momentum in self._momenta.items():
            momentum.copy_(state[str(shape)])

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the parameters along their gradients."""
        for shape, group in self._groups.items():
            gradients = torch.stack([p.grad for p in group if p.grad is not None])
            momentum = self._momenta[shape].lerp_(gradients, 1 - self._momentum)
            directions = _orthogonal(gradients.lerp(momentum, self._momentum)) * max(1, shape[0] / shape[1]) ** 0.5
            for parameter, direction in zip(group, directions, strict=True):
                parameter.mul_(1 - rate * self._decay).add_(direction, alpha=-rate)


def _orthogonal(matrices: Tensor) -> Tensor:
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    result: Tensor = (x.mT if tall else x).float()
    return result
