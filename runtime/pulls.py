"""Pulls that are asked for over HTTP: each model's in a process of its own, whose progress all who asked for it follow.

A process that is killed leaves nothing half done, so a pull that nobody waits for any more is ended by that.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from tenuto.errors import Forbidden, InvalidRequest, ModelLoadFailed, Overloaded
from tenuto.pipelines.finding import model_store
from tenuto.pipelines.model_store import StoredModel, is_name, is_remote, source_of
from tenuto.tools.egress import Egress

logger = logging.getLogger(__name__)

MOST = 4
"""So many models are pulled at a time."""
_LONGEST_LINE = 64 << 10
_RETRY_S = 30.0
_HUB = ("hf.co/", "huggingface.co/")
"""How Ollama's clients name a model of the Hub."""


class Pulls:
    """All that are under way. Event-loop thread only; its block frees them."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._under_way: dict[str, _Pull] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Pulls":
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._group.cancel_scope.cancel()
        await self._stack.aclose()

    @property
    def are_allowed(self) -> bool:
        """Whether the settings allow any."""
        return self._egress is not Egress.OFF

    async def follow(self, model: str) -> AsyncGenerator[dict[str, Any], None]:
        """Pull what a request calls a model, or follow the pull that is under way; its steps as Ollama tells them.

        The last one has the status `success` and the `model`, or is an `error`. A follower that is slow gets the newest
        of each kind alone.

        Raises:
            InvalidRequest: it names no source.
            Forbidden: the settings do not allow that source.
            Overloaded: others are under way.
        """
        name, arguments = await anyio.to_thread.run_sync(_arguments, model, self._egress)
        pull = self._under_way.get(name)
        if pull is None:
            if len(self._under_way) >= MOST:
                raise Overloaded(f"the list of {MOST} models that are pulled at a time", _RETRY_S)
            pull = self._under_way[name] = _Pull()
            self._group.start_soon(self._run, name, pull, arguments)
        return pull.steps()

    async def _run(self, name: str, pull: "_Pull", arguments: Sequence[str]) -> None:
        try:
            with pull.scope:
                await pull.run(arguments)
        except Exception:
            logger.exception("the pull of %s failed", name)
        finally:
            self._under_way.pop(name, None)
            pull.end({"error": "the pull was ended; what has come is kept"})


class _Pull:
    """One process, and the last thing that it told of each file and what was done with it."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self._steps: dict[tuple[Any, Any], tuple[int, dict[str, Any]]] = {}
        """The newest of each kind with its number, in the order of these."""
        self._count = self._followers = 0
        self._has_ended = False
        self._changed = anyio.Event()

    async def steps(self) -> AsyncGenerator[dict[str, Any], None]:
        """What it tells from now on. The last follower that leaves ends it."""
        self._followers += 1
        seen = max(0, self._count - 1)
        try:
            while True:
                later = next((one for one in self._steps.values() if one[0] > seen), None)
                if later is not None:
                    seen, step = later
                    yield step
                elif self._has_ended:
                    return
                else:
                    await self._changed.wait()
        finally:
            self._followers -= 1
            if not self._followers:
                self.scope.cancel()

    async def run(self, arguments: Sequence[str]) -> None:
        """Have the process, until it ends."""
        # The process finds its modules as this one does, but for those that lie where the user happens to be.
        paths = os.pathsep.join(path for path in sys.path if path)
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", "tenuto", "models", "pull", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            lines = BufferedByteReceiveStream(process.stdout)
            while not self._has_ended:
                try:
                    self._tell(json.loads(await lines.receive_until(b"\n", _LONGEST_LINE)))
                except anyio.IncompleteRead:
                    break
            self.end({"error": f"the pull ended with exit code {await process.wait()}"})
        finally:
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def end(self, step: dict[str, Any]) -> None:
        """It is over, with this step where it has told no end itself."""
        if not self._has_ended:
            self._tell(step)
            self._has_ended = True

    def _tell(self, step: dict[str, Any]) -> None:
        kind = step.get("status"), step.get("digest")
        self._count += 1
        self._steps.pop(kind, None)
        self._steps[kind] = self._count, step
        self._has_ended = "error" in step or step.get("status") == "success"
        self._changed.set()
        self._changed = anyio.Event()


def can_be_pulled_again(model: str) -> bool:
    """Whether a model is stored, and from where there may be a newer one. Reads the disk."""
    stored = _stored(model)
    return stored is not None and is_remote(stored.version.source)


def _arguments(model: str, egress: Egress) -> tuple[str, list[str]]:
    """The name of a model and what is pulled for it. Reads the disk."""
    stored = _stored(model)
    source = _source(model) if stored is None else stored.version.source
    if not is_remote(source):
        raise InvalidRequest(
            f"{model} was stored from a file of the server's machine, which is not read again", "model"
        )
    names_host = source.startswith(("http://", "https://")) or source.removeprefix("ollama:").count("/") > 1
    if egress is Egress.OFF or (egress is Egress.PUBLIC and names_host):
        allowed = "nothing" if egress is Egress.OFF else "only from the Hugging Face Hub and from Ollama's registry"
        raise Forbidden(f"this server was started with --egress {egress} and pulls {allowed}")
    if stored is not None:
        return stored.name.lower(), ["--as", stored.name, "--", source]
    try:
        return source_of(source, model_store().root).name.lower(), ["--", source]
    except ModelLoadFailed as error:
        raise InvalidRequest(str(error), "model") from error


def _stored(model: str) -> StoredModel | None:
    return model_store().find(model) if is_name(model) else None


def _source(model: str) -> str:
    """As Ollama's clients name models, and as `tenuto models pull` does."""
    for host in _HUB:
        if model.startswith(host):
            return f"hf:{model.removeprefix(host)}"
    is_file = model.startswith(("http://", "https://")) and model.partition("#")[0].lower().endswith((".gguf", ".json"))
    return model if is_file or model.startswith(("hf:", "ollama:")) else f"ollama:{model}"
