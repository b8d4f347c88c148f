"""A real browser without a window, driven over the DevTools protocol: what a page shows, and what it complains of."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.patience import HANGS_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
# https://chromedevtools.github.io/devtools-protocol/
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Network.loadingFailed")
TALKS_OF = ("Page", "Log", "Runtime", "Network")


def found() -> str | None:
    """The program of a browser on this machine."""
    return next((path for name in (*NAMES, MAC) if (path := shutil.which(name))), None)


@contextmanager
def opened(program: str, folder: Path) -> Iterator["Page"]:
    """A browser with one page; ended with the block."""
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={folder / 'profile'}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        with connect(_address(process), max_size=None, open_timeout=20) as socket:
            yield Page.attach(socket)
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if match := re.search(r"DevTools listening on (ws://\S+)", line):
            return match[1]
    raise AssertionError("the browser ended at its start")


@dataclass
class Page:
    """The page. What was said of it that is no answer is kept, in its order."""

    socket: ClientConnection
    session: str | None = None
    number: int = 0
    heard: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def attach(cls, socket: ClientConnection) -> "Page":
        """The page that the browser has opened."""
        page = cls(socket)
        (target,) = [each for each in page.ask("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        page.session = page.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in TALKS_OF:
            page.ask(f"{domain}.enable")
        return page

    def ask(self, method: str, **params: Any) -> Any:
        """Give a command; its result."""
        self.number += 1
        session = {} if self.session is None else {"sessionId": self.session}
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params, **session}))
        while True:
            message = self._next()
            if message.get("id") == self.number:
                assert "error" not in message, message["error"]
                return message["result"]

    def go(self, url: str) -> None:
        """Open an address, and wait until all of it is loaded."""
        self.heard.clear()
        self.ask("Page.navigate", url=url)
        while not any(message["method"] == "Page.loadEventFired" for message in self.heard):
            self._next()

    def value(self, script: str) -> Any:
        """What a script of ours, which no policy holds back, gives in the page."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """Everything that its console says, scripts that failed, and whatever could not be loaded."""
        return [json.dumps(message["params"]) for message in self.heard if message["method"] in COMPLAINTS]

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout=HANGS_S))
        if "method" in message:
            self.heard.append(message)
        return message
