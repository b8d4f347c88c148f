"""The mean of the weights of runs that went on from each other, each with its share:

    python -m train_embedded_model.averaging OUT CHECKPOINT SHARE [CHECKPOINT SHARE ...]

Such a mean is often better than each of them where all of a run's rates have fallen to 0 at its end: Izmailov and
others, 2018, https://arxiv.org/abs/1803.05407
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def averaged(checkpoints: Sequence[Path], shares: Sequence[float]) -> dict[str, Any]:
    """The weights as a checkpoint that a run can begin with or that can be exported, otherwise as the last one.

    Raises ValueError when the models are not of one shape, or the shares do not come to 1.
    """
    if len(checkpoints) != len(shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"{len(checkpoints)} checkpoints need as many shares that come to 1, not {list(shares)}")
    kept = [torch.load(path, map_location="cpu") for path in checkpoints]
    last = kept[-1]
    for path, each in zip(checkpoints, kept, strict=True):
        if each["shape"] != last["shape"]:
            raise ValueError(f"{path} is a model of another shape: {each['shape']}, and not {last['shape']}")
    networks = [each["network"] for each in kept]
    return {
        "network": {
            name: sum(share * network[name].float() for share, network in zip(shares, networks, strict=True))
            for name in last["network"]
        },
        "shape": last["shape"],
        "tokens": last["tokens"],
        "pool": last["pool"],
    }


def main() -> None:
    """Read the command line and write the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the checkpoint to write, beside the tokeniser of those that are read")
    parser.add_argument("parts", nargs="+", metavar="CHECKPOINT SHARE")
    given = parser.parse_args()
    paths, shares = given.parts[::2], given.parts[1::2]
    try:
        torch.save(averaged([Path(path) for path in paths], [float(share) for share in shares]), given.out)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

__all__ = ["averaged"]
