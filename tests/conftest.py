import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.e2e.server import PROGRAM, Server, script
from tests.embedded import FORMS

Start = Callable[..., Server]

# Tests start hundreds of processes; where this is set, each of them would compile every module of ours.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# How long an example takes to make or to try is the machine's affair. The examples are the same in each run, so that a
# change is judged by what it changes; with EXPLORE=1 they are more, and others each time.
hypothesis.settings.register_profile(
    "tenuto",
    deadline=None,
    max_examples=100 if os.environ.get("EXPLORE") else 30,
    derandomize=not os.environ.get("EXPLORE"),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tenuto")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-engine", action="store_true", help="run all of the loop's tests on every kind of engine")


@pytest.fixture(scope="session", params=FORMS)
def embedded_model(request: pytest.FixtureRequest) -> str:
    """What `--model` takes for the embedded model: the test runs once on each pipeline, and does not know on which."""
    name: str = request.param
    return name


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers; each gets a folder of its own, and is ended after the test."""
    servers: list[Server] = []

    def begin(
        *arguments: str,
        model: str | None = None,
        program: tuple[str, ...] = PROGRAM,
        whole: bool = False,
        rules: Any = (),
        **settings: Any,
    ) -> Server:
        folder = tmp_path / f"server-{len(servers)}"
        folder.mkdir()
        name = script(folder / "model.json", rules, **settings) if model is None else model
        server = Server(folder, name, arguments, program=program, whole=whole)
        servers.append(server)
        return server.start()

    yield begin
    for server in servers:
        server.close()
