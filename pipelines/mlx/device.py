"""Where MLX computes, and the threads that it computes on.

A thread that has used MLX lets go of its streams before it ends: torn down while Python exits, they end the process by
a signal (https://github.com/ml-explore/mlx/pull/4110).
"""

import threading

import mlx.core as mx


def runs_on() -> str:
    """In words: `MLX on Metal`, or on the CPU where there is no Metal."""
    return f"MLX on {'Metal' if mx.metal.is_available() else 'the CPU'}"


def leave_thread() -> None:
    """Let go of what MLX has for this thread, which uses it no more. The main thread keeps it: it ends with Python."""
    if threading.current_thread() is not threading.main_thread():
        mx.clear_streams()
