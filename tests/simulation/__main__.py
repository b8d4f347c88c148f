"""`make simulate`: plays histories by number, and shows the shortest one that goes wrong.

python -m tests.simulation --histories 20000
python -m tests.simulation --seed 1234 --verbose
"""

import argparse
import sys
import time

from tests.simulation.history import History, make
from tests.simulation.many import outcomes
from tests.simulation.play import play
from tests.simulation.shrink import shrink

PROGRESS_S = 10.0


def main() -> int:
    """Returns 1 where an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--histories", type=int, default=20_000, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the first one's number")
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--verbose", action="store_true", help="tell what happens in it")
    parser.add_argument("--shrink-s", type=float, default=60.0, help="how long to look for a shorter one, in seconds")
    parser.add_argument("--processes", type=int, help="how many to play at a time (default: one a core)")
    parser.add_argument("--until", type=int, default=1, help="stop at so many that go wrong")
    given = parser.parse_args()
    if given.seed is not None:
        return one(make(given.seed), verbose=given.verbose)
    return many(given)


def one(history: History, *, verbose: bool) -> int:
    """Play one, and tell."""
    print(history)
    verdict = play(history, trace=verbose)
    print(f"{verdict.steps} steps, {verdict.seconds:.1f} s of virtual time, digest {verdict.digest}")
    for violation in verdict.violations:
        print("VIOLATION", violation)
    return bool(verdict.violations)


def many(given: argparse.Namespace) -> int:
    """Play many, and shrink the first that goes wrong."""
    begun = told = time.perf_counter()
    wrong: dict[int, tuple[str, ...]] = {}
    done = 0
    for outcome in outcomes(range(given.first, given.first + given.histories), given.processes):
        done += 1
        if outcome.violations:
            wrong[outcome.seed] = outcome.violations
            print(f"seed {outcome.seed}: {outcome.violations[0]}", flush=True)
            if len(wrong) >= given.until:
                break
        if time.perf_counter() - told > PROGRESS_S:
            told = time.perf_counter()
            print(f"{done} histories, {len(wrong)} of them wrong, {told - begun:.0f} s", flush=True)
    seconds = time.perf_counter() - begun
    print(f"{done} histories in {seconds:.0f} s: {len(wrong)} violations")
    if wrong:
        seed = min(wrong)
        print(f'\nThe shortest form of {seed}; the whole is: make simulate ARGS="--seed {seed} --verbose"\n')
        one(shrink(make(seed), given.shrink_s), verbose=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
