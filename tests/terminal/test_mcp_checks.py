"""What the doctor advises for a server that does not come up: by the kind of its failure, not by words in it."""

import pytest

from tenuto.runtime.terminal.mcp_checks import remedy
from tenuto.tools.host import Failure


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (Failure.NO_PROGRAM, "correct `command`"),
        (Failure.UNAUTHORIZED, "correct the token"),
        (Failure.NO_ENDPOINT, "correct `url`"),
        (Failure.UNREACHABLE, "start that server"),
        (Failure.TIMED_OUT, "`startTimeout`"),
    ],
)
def test_each_kind_of_failure_has_its_advice(failure: Failure, advice: str) -> None:
    assert advice in remedy(failure, (), None)


def test_numbers_and_words_in_a_programs_last_lines_are_not_taken_for_the_failure() -> None:
    assert remedy(Failure.ENDED, ["listening on 4040", "timeout is 401 s"], None).startswith("see its last lines above")


@pytest.mark.parametrize("line", ["ModuleNotFoundError: No module named 'mcp'", "Error: Cannot find module 'x'"])
def test_a_package_that_is_missing_is_known_from_what_its_interpreter_writes(line: str) -> None:
    assert remedy(Failure.ENDED, [line], None).startswith("install the ")
