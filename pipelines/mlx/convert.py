"""The process in which mlx-lm converts the folder of a model. Run by `remaking` alone: it tells when a step is done."""

import contextlib
import json
import sys

_STEPS = 2


def main(source: str, target: str, bits: str) -> None:
    """Convert a folder; `bits` of each weight, 0: they stay as they are."""
    out = sys.stdout

    def say(step: object) -> None:
        out.write(json.dumps(step) + "\n")
        out.flush()

    say([0, _STEPS])
    with contextlib.redirect_stdout(sys.stderr):
        from mlx_lm.convert import convert

        say([1, _STEPS])
        try:
            convert(source, target, quantize=bits != "0", q_bits=int(bits) or None)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            say({"error": f"{source} cannot be converted; mlx-lm says: {error}"})
            sys.exit(1)
    say([_STEPS, _STEPS])


if __name__ == "__main__":
    main(*sys.argv[1:])
