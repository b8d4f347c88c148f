"""How long tests wait for what must come. No assertion: a machine may be as slow as it likes."""

HANGS_S = 120.0
"""After so long, something hangs. A test's own limit, in pyproject.toml, is longer, so that the test can say what."""
