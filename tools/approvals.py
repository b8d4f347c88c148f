"""Whether a tool may be called without asking: a pure policy, no state and no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tenuto.tools.patterns import matching


class Permission(StrEnum):
    """What may happen without a person's word, from the loosest to the strictest."""

    AUTO = "auto"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """Its place in the order auto < ask < deny."""
        return list(Permission).index(self)


def strictest(permissions: Iterable[Permission]) -> Permission:
    """Pick the strictest. Raises ValueError where there is none."""
    return max(permissions, key=lambda each: each.strictness)


@dataclass(frozen=True, slots=True)
class Rules:
    """Permissions by a tool's exact name or by a glob (`read_*`), as a file lists them.

    A pattern means just itself: `read` does not cover `read_file`. An exact name wins over globs; of several globs that
    match, the strictest wins, so that the order of lines never decides. `otherwise` has its word only where no pattern
    matches.
    """

    patterns: tuple[tuple[str, Permission], ...] = ()
    otherwise: tuple[tuple[str, Permission], ...] = ()

    @classmethod
    def all(cls, permission: Permission) -> "Rules":
        """The rules that say one word for every tool."""
        return cls((("*", permission),))

    def look_up(self, name: str) -> Permission | None:
        """The word for this tool; None where no pattern matches."""
        found = matching(self.patterns, name) or matching(self.otherwise, name)
        return strictest(found) if found else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may happen and why. A denial's reason is the result that the model and the user read."""

    permission: Permission
    reason: str


def decide(
    tool_name: str,
    *,
    builtin: bool,
    server_setting: Permission | None,
    global_setting: Permission | None,
    request_setting: Permission | None,
    client_can_answer: bool,
    remembered: bool,
    has_entry: bool = True,
) -> Verdict:
    """Decide about one call.

    `server_setting` is what the server's entry says of this tool, `global_setting` what `--agent-permission` says.
    `client_can_answer`: the request opted into events, so that its client can be asked. `remembered`: a person has
    approved this tool for the rest of the session. `has_entry` is false of a server that a request has brought. A
    request only ever tightens.
    """
    verdict = _settled(tool_name, builtin, server_setting, global_setting)
    if verdict is None and (client_can_answer or remembered):
        verdict = Verdict(Permission.ASK, "No permission is configured for it, so a person is asked.")
    verdict = verdict or _denied(tool_name, has_entry=has_entry)
    if request_setting is not None and request_setting.strictness > verdict.permission.strictness:
        denied = f"The tool call {tool_name} was denied: " if request_setting is Permission.DENY else ""
        verdict = Verdict(request_setting, f"{denied}the request's agent_permission is {request_setting.value}.")
    if verdict.permission is Permission.ASK and remembered:
        return Verdict(Permission.AUTO, "It has been approved for the rest of this session.")
    return verdict


def _settled(
    tool_name: str,
    builtin: bool,
    server_setting: Permission | None,
    global_setting: Permission | None,
) -> Verdict | None:
    """What the configuration says, before the request has its word; None where it says nothing."""
    if builtin:
        return Verdict(Permission.AUTO, "Built-in tools need no permission.")
    for setting, place in ((server_setting, "its server's entry"), (global_setting, "--agent-permission")):
        if setting is Permission.DENY:
            return Verdict(setting, f"The tool call {tool_name} was denied: {place} says deny.")
        if setting is not None:
            return Verdict(setting, f"{place[0].upper()}{place[1:]} says {setting.value}.")
    return None


def _denied(tool_name: str, *, has_entry: bool) -> Verdict:
    """Nobody has said a word, and nobody can be asked for one."""
    entry = 'set "permission" in its server\'s entry of the MCP configuration, or ' if has_entry else ""
    return Verdict(
        Permission.DENY,
        f"The tool call {tool_name} was denied: it needs permission and nobody can be asked. To allow it, {entry}start "
        "with --agent-permission auto or ask.",
    )
