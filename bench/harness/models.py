"""The models that are measured, by short names: the embedded one, and random weights of real shapes."""

from pathlib import Path

from random_model import SHAPES, random_model

from harness.servers import EMBEDDED

MODELS = ["embedded", *SHAPES]


def model_file(name: str) -> Path:
    """A model's file; one with random weights is made where it is not there."""
    return EMBEDDED if name == "embedded" else random_model(name)
