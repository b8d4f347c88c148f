"""Which projector lies beside a model: by its name, and never one that may be another model's."""

from pathlib import Path

import pytest

from tenuto.pipelines.projector_files import projector_beside


@pytest.mark.parametrize(
    ("model", "others", "found"),
    [
        ("gemma-3-4b-it-Q4_K_M.gguf", ["mmproj-gemma-3-4b-it-f16.gguf"], "mmproj-gemma-3-4b-it-f16.gguf"),
        ("gemma-3-4b-it-Q4_K_M.gguf", ["gemma-3-4b-it.mmproj-Q8_0.gguf"], "gemma-3-4b-it.mmproj-Q8_0.gguf"),
        ("Qwen2.5-VL-3B-Q8_0.gguf", ["mmproj-F16.gguf"], "mmproj-F16.gguf"),
        ("a.gguf", ["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        ("a-00001-of-00002.gguf", ["a-00002-of-00002.gguf", "mmproj-f16.gguf"], "mmproj-f16.gguf"),
        ("a.gguf", ["b.gguf", "mmproj-f16.gguf"], None),
        ("a.gguf", ["mmproj-b-f16.gguf"], None),
        ("gemma-3-4b-it.gguf", ["mmproj-gemma-3-f16.gguf", "mmproj-gemma-3-4b-f16.gguf"], "mmproj-gemma-3-4b-f16.gguf"),
        ("gemma-30b.gguf", ["mmproj-gemma-3-f16.gguf"], None),
        ("mmproj-a.gguf", ["a.gguf"], None),
        ("a.gguf", [], None),
    ],
)
def test_a_projector_is_found_by_its_name(model: str, others: list[str], found: str | None, tmp_path: Path) -> None:
    for name in (model, *others):
        (tmp_path / name).touch()
    beside = projector_beside(tmp_path / model)
    assert (None if beside is None else beside.name) == found
