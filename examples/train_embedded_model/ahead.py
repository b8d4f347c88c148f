"""What a training reads, made ahead of it by processes of their own: a GPU reads more than one core makes."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import TypeVar

from train_embedded_model.ranks import stop_with_parent

T = TypeVar("T")


def ahead(make: Callable[[int], T], numbers: Iterable[int], workers: int) -> Generator[T]:
    """What is made of each number, in their order; two are begun ahead for each worker, with no workers none.

    `make` can be pickled, and what it raises is raised here. Closing the iterator ends the workers.
    """
    if not workers:
        yield from map(make, numbers)
        return
    left = iter(numbers)
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    try:
        begun: deque[Future[T]] = deque(executor.submit(make, number) for number in islice(left, 2 * workers))
        while begun:
            made = begun.popleft().result()
            begun.extend(executor.submit(make, number) for number in islice(left, 1))
            yield made
    finally:
        executor.shutdown(cancel_futures=True)


def _begin() -> None:
    # Ctrl-C goes to every process of a terminal; the training ends its workers itself, when its last step is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop_with_parent()


__all__ = ["ahead"]
