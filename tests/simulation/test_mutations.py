"""Each mistake of the past can still be made in the present code, so that `make simulate-mutations` looks for it."""

import shutil
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_mistake_can_be_made_in_the_present_code(mutation: Mutation, tmp_path: Path) -> None:
    for path in {edit.path for edit in mutation.edits}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    mutation.apply(tmp_path)
    for path in {edit.path for edit in mutation.edits}:
        compile((tmp_path / path).read_text(), path, "exec")
