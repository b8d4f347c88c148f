"""How many threads a step gets: fewer while other processes want the processors. Pure: the times come from outside."""

# Steps shorter than a time slice say little each: a thread has its core in one and waits for it in the next.
_WINDOW_S = 0.05
_KEPT_WAITING, _UNDISTURBED = 0.7, 0.9


class Team:
    """The threads of one context, from one to `most`.

    The thread that steps is at work for nearly all of a step that nobody disturbs. Where it is not, it waits for a
    processor, or at a barrier for another thread that waits for one: with n threads every operation takes as long as
    the unluckiest of them, so a smaller team is the faster one. It grows again as soon as it is undisturbed.
    """

    def __init__(self, most: int) -> None:
        self.most = self.threads = most
        self._wall_s = self._working_s = 0.0

    def stepped(self, wall_s: float, working_s: float) -> bool:
        """Learn how long a step took, and for how much of it its thread was running. Whether the size has changed."""
        self._wall_s += wall_s
        self._working_s += working_s
        if self._wall_s < _WINDOW_S:
            return False
        presence, before = self._working_s / self._wall_s, self.threads
        self._wall_s = self._working_s = 0.0
        step = max(1, self.threads // 4)
        if presence < _KEPT_WAITING:
            self.threads = max(1, self.threads - step)
        elif presence > _UNDISTURBED:
            self.threads = min(self.most, self.threads + step)
        return self.threads != before
