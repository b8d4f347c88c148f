"""Where MLX computes on this machine."""

import mlx.core as mx


def runs_on() -> str:
    """In words: `MLX on Metal`, or on the CPU where there is no Metal."""
    return f"MLX on {'Metal' if mx.metal.is_available() else 'the CPU'}"
