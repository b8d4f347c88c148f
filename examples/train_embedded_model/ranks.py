"""Several processes that train one model, each on batches of its own; after every step their gradients are averaged.

On a CPU this beats one process with several threads, which wait for each other after every operation.
"""

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, distributed

_PLACE = "127.0.0.1"


class Ranks:
    """This process among all that train. With one there is nothing to exchange."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Put the mean over all processes into the gradients."""
        if self.count == 1:
            return
        flat = torch.cat([each.reshape(-1) for each in gradients])
        distributed.all_reduce(flat)
        flat /= self.count
        for each, mean in zip(gradients, torch.split(flat, [each.numel() for each in gradients]), strict=True):
            each.copy_(mean.view_as(each))

    def least(self, number: int) -> int:
        """The smallest of the processes' numbers."""
        return self._reduced([number], distributed.ReduceOp.MIN)[0]

    def totals(self, *numbers: int) -> list[int]:
        """The sums of the processes' numbers, each for itself."""
        return self._reduced(numbers, distributed.ReduceOp.SUM)

    def wait(self) -> None:
        """Until all processes have come here."""
        if self.count > 1:
            distributed.barrier()

    def _reduced(self, numbers: Sequence[int], how: distributed.ReduceOp.RedOpType) -> list[int]:
        held = torch.tensor(numbers)
        if self.count > 1:
            distributed.all_reduce(held, how)
        return [int(each) for each in held]


def run_ranks(count: int, work: Callable[[Ranks], None]) -> None:
    """Do the work in so many processes and wait for them. `work` can be pickled; SIGTERM tells it to stop.

    Raises RuntimeError when a process fails.
    """
    if count == 1:
        work(Ranks())
        return
    with socket.create_server((_PLACE, 0)) as free:
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_rank, args=(rank, count, port, work)) for rank in range(count)]

    def stop(*_: object) -> None:
        for process in processes:
            process.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    failed = [rank for rank, process in enumerate(processes) if process.exitcode]
    if failed:
        raise RuntimeError(f"of the processes that train together these failed: {failed}")


def _rank(rank: int, count: int, port: int, work: Callable[[Ranks], None]) -> None:
    stop_with_parent()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", f"tcp://{_PLACE}:{port}", world_size=count, rank=rank)
    try:
        work(Ranks(rank, count))
    finally:
        distributed.destroy_process_group()


def stop_with_parent() -> None:
    """Tell this process to stop when the one that started it has ended, however that was."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


__all__ = ["Ranks", "run_ranks", "stop_with_parent"]
