"""The permission policy: section by section, and that a request can never loosen it."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.tools.approvals import Permission, Rules, Verdict, decide

AUTO, ASK, DENY = Permission.AUTO, Permission.ASK, Permission.DENY
maybe = st.none() | st.sampled_from(Permission)


@dataclass(frozen=True)
class Case:
    """All that a decision depends on. The default: a configured server of which nothing is said."""

    builtin: bool = False
    server: Permission | None = None
    everywhere: Permission | None = None
    request: Permission | None = None
    can_answer: bool = False
    remembered: bool = False

    def decide(self) -> Verdict:
        return decide(
            "fs__write",
            builtin=self.builtin,
            server_setting=self.server,
            global_setting=self.everywhere,
            request_setting=self.request,
            client_can_answer=self.can_answer,
            remembered=self.remembered,
        )


cases = st.builds(Case, st.booleans(), maybe, maybe, maybe, st.booleans(), st.booleans())


@pytest.mark.parametrize(
    ("case", "permission"),
    [
        (Case(builtin=True), AUTO),
        (Case(builtin=True, everywhere=DENY), AUTO),
        (Case(builtin=True, request=ASK), ASK),
        (Case(builtin=True, request=DENY), DENY),
        (Case(), DENY),
        (Case(can_answer=True), ASK),
        (Case(everywhere=AUTO), AUTO),
        (Case(everywhere=AUTO, request=ASK), ASK),
        (Case(server=ASK, everywhere=AUTO), ASK),
        (Case(server=AUTO, everywhere=DENY), AUTO),
        (Case(server=ASK), ASK),
        (Case(server=DENY, request=AUTO, can_answer=True), DENY),
        (Case(request=AUTO), DENY),
        (Case(can_answer=True, remembered=True), AUTO),
        (Case(remembered=True), AUTO),
        (Case(server=ASK, remembered=True), AUTO),
        (Case(server=ASK, request=DENY, remembered=True), DENY),
        (Case(server=DENY, remembered=True), DENY),
    ],
)
def test_the_permission_of_a_call(case: Case, permission: Permission) -> None:
    assert case.decide().permission is permission


def test_a_denial_for_want_of_a_setting_names_the_settings() -> None:
    reason = Case().decide().reason
    assert "fs__write" in reason
    assert '"permission"' in reason
    assert "--agent-permission" in reason


@pytest.mark.parametrize("case", [Case(server=DENY), Case(everywhere=DENY), Case(builtin=True, request=DENY)])
def test_a_denial_says_who_denied(case: Case) -> None:
    reason = case.decide().reason
    assert reason.startswith("The tool call fs__write was denied: ")
    assert reason.endswith((" says deny.", " is deny."))


@given(cases)
def test_a_request_can_never_loosen(case: Case) -> None:
    without = replace(case, request=None).decide().permission
    assert case.decide().permission.strictness >= without.strictness


@given(cases)
def test_a_remembered_approval_never_lifts_a_denial(case: Case) -> None:
    if replace(case, remembered=False, can_answer=True).decide().permission is DENY:
        assert replace(case, remembered=True).decide().permission is DENY


@given(cases)
def test_nobody_is_asked_what_is_remembered(case: Case) -> None:
    assert replace(case, remembered=True).decide().permission is not ASK


@pytest.mark.parametrize(
    ("patterns", "name", "found"),
    [
        ({"read": AUTO}, "read", AUTO),
        ({"read": AUTO}, "read_file", None),
        ({"read": AUTO}, "thread", None),
        ({"read_*": AUTO}, "read_file", AUTO),
        ({"read_*": AUTO}, "READ_file", None),
        ({"*": DENY, "read_file": AUTO}, "read_file", AUTO),
        ({"read_*": AUTO, "*": ASK}, "read_file", ASK),
        ({"*": ASK, "read_*": AUTO}, "read_file", ASK),
        ({}, "read", None),
    ],
)
def test_an_exact_name_wins_and_of_globs_the_strictest(
    patterns: dict[str, Permission], name: str, found: Permission | None
) -> None:
    assert Rules(tuple(patterns.items())).look_up(name) is found
