"""python -m tenuto, and the `tenuto` command."""

from tenuto.runtime.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
