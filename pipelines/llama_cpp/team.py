"""How many threads a step gets: as many as are worth it for its size, and fewer while others want the processors.

Pure: the times come from outside.
"""

from statistics import median

# Steps shorter than a time slice say little each: a thread has its core in one and waits for it in the next.
_WINDOW_S = 0.05
_KEPT_WAITING, _UNDISTURBED = 0.7, 0.9
_LONGEST_WAIT = 32
"""Windows without disturbance before a team grows that was disturbed whenever it grew."""

LARGE = 32
"""A step of so many tokens is a large one: it computes more than it waits for weights."""

_FIRST_TRIAL, _LAST_TRIAL, _LAST_OF_MORE = 256, 1 << 14, 1 << 10
"""Steps from one trial to the next: the more trials have changed nothing, the more. But not so many where some threads
are left out, since what made them slow may have been another process that has ended."""
_BLOCK = 4
"""Steps in turn with one number of threads. The first of them starts or ends threads, and does not count."""
_BLOCKS = 8
_LIKE = 0.25
"""Steps count that are no more than so much larger or smaller than the trial's first."""
_HOPELESS, _SLOWER = 1.3, 1.1
"""A number of threads that is so many times slower in one pair of blocks, or in two, is not tried any longer."""
_AS_FAST, _FASTER = 1.02, 0.95
"""Fewer threads are taken where they are as fast, more only where they are faster."""


class Team:
    """The threads that the machine has room for, from one to `most`.

    The thread that steps is at work for nearly all of a step that nobody disturbs. Where it is not, it waits for a
    processor, or at a barrier for another thread that waits for one: with n threads every operation takes as long as
    the unluckiest of them, so a smaller team is the faster one. It grows again when it is undisturbed: at once, or
    after ever longer where it is disturbed again as soon as it has grown, as beside a process that leaves one core
    free.
    """

    def __init__(self, most: int) -> None:
        self.most = self.threads = most
        self._wall_s = self._working_s = 0.0
        self._patience = 1
        self._quiet = 0
        self._since_growth: int | None = None
        """Windows since it has grown; None: it has not, or has stood that."""

    def stepped(self, wall_s: float, working_s: float) -> bool:
        """Learn how long a step took, and for how much of it its thread was running. Whether the size has changed."""
        self._wall_s += wall_s
        self._working_s += working_s
        if self._wall_s < _WINDOW_S:
            return False
        presence, before = self._working_s / self._wall_s, self.threads
        self._wall_s = self._working_s = 0.0
        step = max(1, self.threads // 4)
        if self._since_growth is not None:
            self._since_growth += 1
        if presence < _KEPT_WAITING:
            if self._since_growth is not None:
                self._patience = min(2 * self._patience, _LONGEST_WAIT)
            self._quiet, self._since_growth = 0, None
            self.threads = max(1, self.threads - step)
        elif presence > _UNDISTURBED:
            self._quiet += 1
            if self._since_growth == 4:
                self._patience, self._since_growth = 1, None
            if self._quiet >= self._patience and self.threads < self.most:
                self._quiet, self._since_growth = 0, 0
                self.threads = min(self.most, self.threads + step)
        return self.threads != before


class Worth:
    """How many threads steps of one kind are worth: fewer than there are where these are as fast.

    Now and then it tries a few more or fewer, in blocks of steps in turn, and compares what a token took. A trial is
    given up as soon as it is seen to be the slower, so that it costs little.
    """

    def __init__(self, most: int) -> None:
        self.most = self.best = most
        self._wait = self._until = _FIRST_TRIAL
        self._tries_more = False
        self._trial: _Trial | None = None

    def threads(self, room: int) -> int:
        """How many the next step gets, where there is room for so many."""
        return min(room, self.best if self._trial is None else self._trial.threads)

    def stepped(self, room: int, tokens: int, wall_s: float, *, is_disturbed: bool) -> None:
        """Learn what a step took that has had `threads(room)` of them."""
        if self._trial is None:
            self._until -= 1
            if self._until <= 0:
                self._begin(room, tokens)
            return
        if room < max(self._trial.best, self._trial.other):  # others want the processors: it says nothing
            self._end()
            return
        verdict = self._trial.stepped(tokens, wall_s, is_disturbed=is_disturbed)
        if verdict is not None:
            self._end(self._trial.other if verdict else None)

    def _begin(self, room: int, tokens: int) -> None:
        step = max(1, self.best // 4)
        more, fewer = min(self.most, self.best + step), max(1, self.best - step)
        self._tries_more = more > self.best and (fewer == self.best or not self._tries_more)
        other = more if self._tries_more else fewer
        if other != self.best and room >= max(other, self.best):
            self._trial = _Trial(self.best, other, tokens)
        else:
            self._until = self._wait

    def _end(self, chosen: int | None = None) -> None:
        self._trial = None
        if chosen is not None:
            self.best = chosen
        longest = _LAST_TRIAL if self.best == self.most else _LAST_OF_MORE
        self._wait = min(4 * self._wait, longest) if chosen is None else _FIRST_TRIAL
        self._until = self._wait


class _Trial:
    """Blocks of steps with the `best` number of threads known and with the `other`, in turn."""

    def __init__(self, best: int, other: int, tokens: int) -> None:
        self.best, self.other, self._tokens = best, other, tokens
        self._steps = 0
        self._took: dict[int, list[float]] = {best: [], other: []}

    @property
    def threads(self) -> int:
        """How many the next step gets."""
        return self.other if self._steps // _BLOCK % 2 else self.best

    def stepped(self, tokens: int, wall_s: float, *, is_disturbed: bool) -> bool | None:
        """Whether the other number is the better one; None: not known yet."""
        is_first = self._steps % _BLOCK == 0
        if not (is_first or is_disturbed) and abs(tokens - self._tokens) <= _LIKE * self._tokens:
            self._took[self.threads].append(wall_s / tokens)
        self._steps += 1
        if self._steps % (2 * _BLOCK):
            return None
        pairs, least = self._steps // (2 * _BLOCK), min(map(len, self._took.values()))
        if least < (_BLOCK - 1) * min(pairs, _BLOCKS) // 2:
            return False if pairs >= _BLOCKS else None  # steps of other sizes, or disturbed ones
        ratio = median(self._took[self.other]) / median(self._took[self.best])
        if ratio > _HOPELESS or (pairs > 1 and ratio > _SLOWER):
            return False
        if pairs < _BLOCKS:
            return None
        return ratio <= (_AS_FAST if self.other < self.best else _FASTER)


class Teams:
    """The threads of one context: those that there is room for, of which steps that decode and steps that feed prompts
    each get as many as they are worth."""

    def __init__(self, most: int) -> None:
        self._team = Team(most)
        self._small, self._large = Worth(most), Worth(most)

    def threads(self, tokens: int = 1) -> int:
        """How many a step of so many tokens gets."""
        return self._of(tokens).threads(self._team.threads)

    def stepped(self, tokens: int, wall_s: float, working_s: float) -> None:
        """Learn how long a step of so many tokens took, and for how much of it its thread was running."""
        is_disturbed = working_s < _KEPT_WAITING * wall_s
        self._of(tokens).stepped(self._team.threads, tokens, wall_s, is_disturbed=is_disturbed)
        self._team.stepped(wall_s, working_s)

    def _of(self, tokens: int) -> Worth:
        return self._large if tokens >= LARGE else self._small
