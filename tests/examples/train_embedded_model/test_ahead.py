"""What is read is made ahead by other processes: the same, in the same order, and they end with whoever asked."""

import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("torch", reason="needs tenuto[train]: make model-test")
pytest.importorskip("faker")
from train_embedded_model.ahead import ahead
from train_embedded_model.batches import Recipe
from train_embedded_model.tokens import train_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def slower_first(number: int) -> int:
    """A square, of a small number later than that of a large one."""
    time.sleep(0.2 / (1 + number))
    return number * number


def refused(number: int) -> int:
    """Work that fails at its third piece."""
    if number == 2:
        raise ValueError("number 2 cannot be made")
    return number


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_made_comes_in_the_order_of_the_numbers(workers: int) -> None:
    assert list(ahead(slower_first, range(9), workers)) == [number * number for number in range(9)]


def test_no_more_is_begun_than_two_for_each_worker() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    with closing(ahead(slower_first, numbers(), 2)) as made:
        assert list(islice(made, 3)) == [0, 1, 4]
        assert taken == list(range(4 + 3))


@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_made_is_raised_in_its_place(workers: int) -> None:
    made = ahead(refused, count(), workers)
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ValueError, match="number 2"):
        next(made)


def test_closing_ends_the_processes_that_make() -> None:
    made = ahead(slower_first, count(), 2)
    next(made)
    assert len(multiprocessing.active_children()) == 2
    made.close()
    assert not multiprocessing.active_children()


def test_another_process_makes_the_same_pools(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    train_tokenizer(tokenizer, vocabulary=900, seed=1, conversations=100)
    recipe = Recipe(tokenizer, seed=3, batch_tokens=4096, longest=512, long_from=0, rank=1, ranks=2)
    with closing(ahead(recipe.pool, count(5), 1)) as pools:
        theirs = next(pools)
    ours = recipe.pool(5)
    assert len(ours) == len(theirs) > 1
    for one, other in zip(ours, theirs, strict=True):
        for name in ("ids", "targets", "weights", "places", "sources"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
