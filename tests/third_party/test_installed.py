"""Where a registry cannot be reached, tests of what it has are skipped; what cannot be installed is a failure."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.third_party.installed import from_npm, from_pypi

pytestmark = [pytest.mark.slow, pytest.mark.clients]

NOBODY = "http://127.0.0.1:9"
PACKAGES = [(from_npm, "opencode-ai", "1.18.33"), (from_pypi, "mcp-server-time", "2026.10.19")]


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed yet, and nobody waits long for a second try."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_fetch_retry_mintimeout", "1")
    monkeypatch.setenv("PIP_RETRIES", "1")


@pytest.mark.parametrize(("install", "package", "version"), PACKAGES)
def test_a_registry_that_is_not_there_is_a_reason_to_skip(
    monkeypatch: pytest.MonkeyPatch, install: Callable[..., Any], package: str, version: str
) -> None:
    monkeypatch.setenv("npm_config_registry", NOBODY)
    monkeypatch.setenv("PIP_INDEX_URL", NOBODY)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the registry cannot be reached"):
        install(package, version)


@pytest.mark.parametrize(("install", "package", "version"), PACKAGES)
def test_a_version_that_is_not_there_is_a_failure(install: Callable[..., Any], package: str, version: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="failed:"):
        install(package, version + "999")
