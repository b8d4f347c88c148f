"""Which tools a run has and what it may do with them: the server's settings, applied to one call."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenuto.tools.approvals import Permission, Rules, Verdict, decide
from tenuto.tools.names import READ_RESOURCE
from tenuto.tools.registry import Registry
from tenuto.tools.spec import digest

NOBODY_ASKED = (
    "The tool call {tool} was refused: it needs a person's approval, this key is not a person's, and nobody can be"
    ' asked. To allow it, set person = true for the key in [[keys]] of tenuto.toml, or "permission" in its server\'s'
    " entry of the MCP configuration, or use a client that supports form elicitation."
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The server's word on permissions. `servers` has the rules of each configured server's entry, on its own tool
    names; a server that is not in it is built in."""

    registry: Registry
    configured: Mapping[str, Rules] = field(default_factory=dict)
    everywhere: Permission | None = None

    def decide(self, tool: str, *, request: Permission | None, can_answer: bool, remembered: bool) -> Verdict:
        """Whether a server's tool may be called now, by its exported name."""
        found = self.registry.known(tool)
        server = None if found is None else found.server
        rules = None if server is None else self.configured.get(server)
        own = None if found is None else found.tool.spec.name
        return decide(
            tool,
            # A tool that is not known cannot run: the call's result tells the model so.
            builtin=rules is None,
            server_setting=None if rules is None or own is None else rules.look_up(own),
            global_setting=self.everywhere,
            request_setting=request,
            client_can_answer=can_answer,
            remembered=remembered,
        )

    def decide_reading(self, server: str, *, request: Permission | None, can_answer: bool, remembered: bool) -> Verdict:
        """Whether a resource of a configured server may be read now: as a tool `read_resource` of that server."""
        rules = self.configured.get(server)
        return decide(
            READ_RESOURCE,
            builtin=rules is None,
            server_setting=None if rules is None else rules.look_up(READ_RESOURCE),
            global_setting=self.everywhere,
            request_setting=request,
            client_can_answer=can_answer,
            remembered=remembered,
        )

    def decide_requested(self, tool: str, *, request: Permission | None, can_answer: bool, remembered: bool) -> Verdict:
        """The same of a tool whose server a request has brought: of the settings, only the one for all is about it."""
        return decide(
            tool,
            builtin=False,
            server_setting=None,
            global_setting=self.everywhere,
            request_setting=request,
            client_can_answer=can_answer,
            remembered=remembered,
            has_entry=False,
        )

    def decide_direct(self, tool: str, *, has_word: bool) -> Verdict:
        """Whether a tool may be called from outside any session. `has_word`: a person has approved this very call."""
        verdict = self.decide(tool, request=None, can_answer=True, remembered=has_word)
        if verdict.permission is Permission.ASK:
            return Verdict(Permission.ASK, NOBODY_ASKED.format(tool=tool))
        return verdict

    def remembered_as(self, tool: str) -> str:
        """What stands in a session for the approval of a tool as it is now: another definition is not approved."""
        found = self.registry.known(tool)
        return tool if found is None else f"{tool} {digest(found.tool)}"

    def repeatable(self, tool: str) -> bool:
        """Whether a call that may have been made may be made again."""
        found = self.registry.known(tool)
        return found is not None and found.tool.annotations.repeatable
