"""Every error that Tenuto raises on purpose, named by what the caller can do about it.

No HTTP here: each dialect maps these classes to its own status and wire form.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class TenutoError(Exception):
    """Base of every error that we raise on purpose. Its text is meant for the caller."""

    code: ClassVar[str] = "internal"
    _data: Mapping[str, Any] = MappingProxyType({})

    @property
    def data(self) -> dict[str, Any]:
        """What a program may want to read besides the text: JSON values only."""
        return dict(self._data)


class InvalidRequest(TenutoError):
    """The request cannot be understood or asks for what is refused. `param` names the field."""

    code = "invalid_request"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnsupportedParameter(InvalidRequest):
    """A field that we know and do not serve; ignoring it would give a wrong answer."""

    code = "unsupported_parameter"


class IdempotencyMismatch(InvalidRequest):
    """The same Idempotency-Key came with another body."""

    code = "idempotency_mismatch"


class MissingToolResults(InvalidRequest):
    """Some outstanding tool calls got results, others did not; the results that came are kept."""

    code = "missing_tool_results"

    def __init__(self, missing: list[str]) -> None:
        super().__init__(
            f"tool results are missing for {', '.join(missing)}; the results received so far are kept", "messages"
        )
        self.missing = missing
        self._data = {"missing_tool_call_ids": missing}


class ContextTooLong(InvalidRequest):
    """The prompt does not fit the model's context; the session is unchanged."""

    code = "context_too_long"

    def __init__(
        self,
        prompt_tokens: int,
        limit: int,
        fork_at: int | None = None,
        *,
        at_least: bool = False,
        text: str | None = None,
    ) -> None:
        self.text = text  # which of several texts it is, as in `input[0]`
        self.prompt_tokens, self.limit, self.fork_at, self.at_least = prompt_tokens, limit, fork_at, at_least
        self.size = f"at least {prompt_tokens}" if at_least else str(prompt_tokens)
        """How many tokens the prompt has, in words."""
        hint = self.hint and f"; {self.hint}"
        param = text or "messages"
        super().__init__(f"the prompt has {self.size} tokens; the model takes at most {limit}{hint}", param)

    @property
    def hint(self) -> str:
        """What to do about it, in words; empty where there is nothing to tell."""
        if self.text is not None:
            return f"shorten {self.text}"
        return "" if self.fork_at is None else f"a fork at item {self.fork_at} would fit"

    @property
    def data(self) -> dict[str, Any]:
        """The sizes, and the item at which a fork would fit."""
        return {"prompt_tokens": self.prompt_tokens, "limit": self.limit, "fork_at": self.fork_at}


class TemplateFailed(InvalidRequest):
    """The model's chat template refused this conversation."""

    code = "template_failed"


class Unauthenticated(TenutoError):
    """No key or token, or one that is not taken. `presented`: there was one."""

    code = "unauthenticated"

    def __init__(self, message: str, *, presented: bool = False) -> None:
        super().__init__(message)
        self.presented = presented


class Forbidden(TenutoError):
    """The Host or Origin of the request is not allowed, or whoever asks may not do this."""

    code = "forbidden"


class NotFound(TenutoError):
    """There is no such thing, or it belongs to another principal."""

    code = "not_found"

    def __init__(self, kind: str, name: str, known: list[str] | None = None) -> None:
        known_text = "" if known is None else f"; known: {', '.join(known) or 'none'}"
        super().__init__(f"there is no {kind} {name!r}{known_text}")
        self.kind, self.name, self.known = kind, name, known


class LegNotFound(NotFound):
    """There is no answer of this id to be asked for again."""

    def __init__(self, id: str) -> None:
        super().__init__("response", id)


class UnknownPrevious(InvalidRequest):
    """There is no answer of the id after which the request is to go on."""

    code = "previous_response_not_found"


class UnknownUrl(TenutoError):
    """There is nothing at this path."""

    code = "unknown_url"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path}: not found")


class MethodNotAllowed(TenutoError):
    """There is something at this path, and not for this method."""

    code = "method_not_allowed"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path}: method not allowed")


class UpgradeRequired(TenutoError):
    """There is a WebSocket at this path, and the request does not ask for one."""

    code = "upgrade_required"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"GET {path} opens a WebSocket: ask for it with Connection: Upgrade and Upgrade: websocket, or use POST"
        )


class BodyTooLarge(TenutoError):
    """The request's body is over the limit."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes, which is the setting max_body_bytes")
        self.limit = limit


class HeadTooLarge(TenutoError):
    """What a request says around its body, its head above all, is over the limit."""

    code = "head_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request's head is larger than {limit} bytes, counting trailers and chunk framing")
        self.limit = limit


class TookTooLong(InvalidRequest):
    """What the request asks for was given up, so that it stands in nobody's way."""

    code = "took_too_long"

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took more than {seconds:g} s, or too much memory")


class Conflict(TenutoError):
    """The state of a thing does not allow the request now."""

    code = "conflict"


class SessionBusy(Conflict):
    """The session has an open run that is working; try again when it is done."""

    code = "session_busy"

    def __init__(self, session_id: str, run_id: str, retry_after_s: float = 1.0) -> None:
        super().__init__(f"session {session_id!r} is busy with run {run_id}")
        self.session_id, self.run_id, self.retry_after_s = session_id, run_id, retry_after_s
        self._data = {"run_id": run_id}


class SessionPaused(Conflict):
    """The session's open run waits for an approval or an answer; retrying will not help."""

    code = "session_paused"

    def __init__(self, session_id: str, run_id: str, pause_id: str, reason: str) -> None:
        super().__init__(f"session {session_id!r} waits for {reason} {pause_id} in run {run_id}; answer it first")
        self.session_id, self.run_id, self.pause_id, self.reason = session_id, run_id, pause_id, reason
        self._data = {"run_id": run_id, "pause_id": pause_id, "reason": reason}


class AlreadyDecided(Conflict):
    """The approval has been answered before, has expired, or its run has ended."""

    code = "already_decided"


class Overloaded(TenutoError):
    """A queue is full. Nothing has been done; try again after `retry_after_s`."""

    code = "overloaded"

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(f"{what} is full; try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class ShuttingDown(TenutoError):
    """The server is stopping and takes no new work."""

    code = "shutting_down"


class GenerationFailed(TenutoError):
    """The model's step failed for this sequence; its session goes on from its last commit."""

    code = "generation_failed"


class StoreFailed(TenutoError):
    """What was to be kept could not be written; nothing of it is acknowledged."""

    code = "store_failed"


class CommitUnsettled(StoreFailed):
    """Whether a commit was kept is not known yet; the session is read again before its next use."""

    code = "commit_unsettled"


class SessionDamaged(StoreFailed):
    """What the store has of a session makes no whole. It can be exported as it is, and deleted."""

    code = "session_damaged"

    def __init__(self, session: str, what: str) -> None:
        super().__init__(
            f"session {session!r} is damaged: {what}; GET /v1/sessions/ID?raw=1 returns what is left of it, DELETE"
            " removes it"
        )


class RunUnreadable(StoreFailed):
    """A run was kept by another version, in a form that this one cannot go on with. It can be cancelled."""

    code = "run_unreadable"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was stored by another version of tenuto and cannot continue; cancel it")


class StoreUnavailable(StoreFailed):
    """The store cannot write for now, because its disk is full or cannot be reached. Nothing has been begun."""

    code = "store_unavailable"


class ToolFailed(TenutoError):
    """A tool could not be called or did not answer. The loop turns it into a result that the model reads.

    `may_have_run` is true where the call may have had an effect, so that nobody repeats it.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, may_have_run: bool) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run


class ServerUnreachable(TenutoError):
    """A server whose client we are is not there, or went away: an MCP server, or the owner of a data folder.

    Of an MCP server it says that the call has not reached it; one that may have run is a `ToolFailed`.
    """

    code = "server_unreachable"


class McpServerFailed(InvalidRequest):
    """An MCP server that the request brings by its URL cannot be used. `param` names it; nothing has been begun."""

    code = "mcp_server_failed"

    def __init__(self, label: str, why: str, param: str) -> None:
        super().__init__(f"{param}: the tools of the MCP server {label!r} cannot be listed: {why}", param)
        self._data = {"server": label}


class ModelLoadFailed(TenutoError):
    """A model cannot be loaded: the file is missing, broken, or needs what is not installed."""

    code = "model_load_failed"


class ModelNotLoaded(TenutoError):
    """A model is not loaded now, and nothing has been begun with it. Who can wait loads it and tries again."""

    code = "model_not_loaded"

    def __init__(self, id: str) -> None:
        super().__init__(f"the model {id!r} is not loaded now; try again")
        self.id = id


class NoRoomForModel(Overloaded):
    """A model cannot be loaded now, since those that are loaded are in use; the text has the numbers."""

    code = "no_room_for_model"


class ConfigurationError(TenutoError):
    """A setting, a file or the data folder is wrong; the text says which and what to do."""

    code = "configuration"
