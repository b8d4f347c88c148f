"""`make simulate-mutations`: makes each mistake in a copy of the tree, and plays histories until one shows it."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.simulation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[3]
NEEDED = ("tenuto", "runtime", "tools", "sessions", "pipelines", "tests")


def main() -> int:
    """Returns 1 where a mistake is not found."""
    parser = argparse.ArgumentParser(prog="make simulate-mutations", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000, help="how many to play at most")
    parser.add_argument("names", nargs="*", help="which mistakes (default: all)")
    given = parser.parse_args()
    missed = 0
    print("| mistake | what it does | first seed | seconds |\n|---|---|---|---|", flush=True)
    for mutation in MUTATIONS:
        if given.names and mutation.name not in given.names:
            continue
        begun = time.perf_counter()
        seed = find(mutation, given.histories)
        missed += seed is None
        shown = "not found" if seed is None else str(seed)
        print(f"| {mutation.name} | {mutation.what} | {shown} | {time.perf_counter() - begun:.0f} |", flush=True)
    return bool(missed)


def find(mutation: Mutation, histories: int) -> int | None:
    """The first seed that shows the mistake."""
    with tempfile.TemporaryDirectory(prefix="tenuto-mutation-") as folder:
        copy = Path(folder)
        for name in NEEDED:
            ignored = shutil.ignore_patterns("__pycache__", "*.gguf", "*.safetensors")
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
        mutation.apply(copy)
        command = [sys.executable, "-m", "tests.simulation", "--histories", str(histories), "--shrink-s", "0"]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^seed (\d+): ", done.stdout, re.MULTILINE)
    if found is None and done.returncode:
        raise RuntimeError(f"the simulation did not come to its end:\n{done.stderr[-4000:]}")
    return None if found is None else int(found[1])


if __name__ == "__main__":
    sys.exit(main())
