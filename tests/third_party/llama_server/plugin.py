"""A plugin of pytest for llama-server's own tests, in a process of their own: they start Tenuto instead.

Nothing in their files is changed. What is replaced is how a `ServerProcess` starts and stops a server. Servers that are
asked for with equal settings are one, as starting takes longer than most of the tests.
"""

import importlib
import json
import shutil
import sys
import tempfile
import types
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.server import Server
from tests.third_party.llama_server.models import EMBEDDER, RANKER, fitting
from tests.third_party.llama_server.table import FAILS, NOT_RUN, PASSES

MOST_SERVERS = 3
SHORTEST_CONTEXT = 256
OWN_CONTEXT = ("test_template.py",)
"""Their templates are long in the tokens of a model that was not made for them; of the context nothing is asserted."""
# Theirs import it to download models, and nothing is downloaded here.
sys.modules.setdefault("wget", types.ModuleType("wget"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", help="the file to write to what came of each test, and why")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Instead(config), "tenuto-instead")


class Instead:
    """Starts servers of ours where theirs are asked for, and tells what came of each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._report = Path(config.getoption("--outcomes"))
        self._folder = Path(tempfile.mkdtemp(prefix="tenuto-llama-server-"))
        self._servers: OrderedDict[tuple[Any, ...], Server] = OrderedDict()
        self._names: dict[str, tuple[str, str, int | None]] = {}
        self._outcomes: dict[str, tuple[str, str]] = {}
        self._module = ""
        utils: Any = importlib.import_module("utils")
        instead = self

        def start(asked: Any, timeout_seconds: int = 0) -> None:
            instead.start(asked)

        def stop(asked: Any) -> None:
            asked.process = None

        utils.ServerProcess.start, utils.ServerProcess.stop = start, stop
        utils.ServerPreset.load_all = staticmethod(lambda: None)

    def start(self, asked: Any) -> None:
        """Serve what a `ServerProcess` asks for, as far as we have its settings."""
        flags = _flags(asked, whole=self._module in OWN_CONTEXT)
        settings = (*flags, self._module, asked.model_alias, asked.chat_template_file, asked.pooling)
        server = self._servers.pop(settings, None)
        if server is None:
            place = Path(tempfile.mkdtemp(dir=self._folder))
            server = Server(place, fitting(asked, self._module, self._folder), flags).start()
        self._servers[settings] = server
        while len(self._servers) > MOST_SERVERS:
            self._servers.popitem(last=False)[1].close()
        asked.server_port = urlsplit(server.url).port

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Number the sets of parameters, and leave out what needs a model that is downloaded."""
        counted: Counter[tuple[str, str]] = Counter()
        slow: list[pytest.Item] = []
        for item in items:
            place = (item.path.name, getattr(item, "originalname", item.name))
            counted[place] += 1
            self._names[item.nodeid] = (*place, counted[place] if hasattr(item, "callspec") else None)
            if item.get_closest_marker("slow"):
                slow.append(item)
                self._outcomes[item.nodeid] = (NOT_RUN, "slow")
        items[:] = [item for item in items if item not in slow]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._module = item.path.name

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._outcomes[report.nodeid] = (NOT_RUN, str(report.longrepr))
        elif report.failed:
            self._outcomes[report.nodeid] = (FAILS, report.longreprtext)
        else:
            self._outcomes.setdefault(report.nodeid, (PASSES, ""))

    def pytest_sessionfinish(self) -> None:
        for server in self._servers.values():
            server.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        told = [(*self._names[node], *outcome) for node, outcome in self._outcomes.items()]
        self._report.write_text(json.dumps(told))


def _flags(asked: Any, *, whole: bool) -> tuple[str, ...]:
    """Its settings as ours, with the `whole` context of the model or its own.

    There is no seed for a whole server here, so the temperature is 0.
    """
    flags = ["--temperature", "0", "--default-tools", "none"]
    if asked.n_ctx and not whole:
        flags += ["--context", str(max(SHORTEST_CONTEXT, asked.n_ctx // (asked.n_slots or 1)))]
    if asked.n_slots and asked.model_alias not in (EMBEDDER, RANKER):
        flags += ["--slots", str(asked.n_slots)]
    if asked.n_predict and asked.n_predict > 0:
        flags += ["--max-tokens", str(asked.n_predict)]
    if asked.api_key:
        flags += ["--api-key", asked.api_key]
    return tuple(flags)
