"""The page of llama-server's own tests says of each what comes of it, and of those that do not pass, why."""

import re
from collections import Counter

from tests.third_party.llama_server.table import PAGE, PASSES, modules, rows

ASKED_FOR = 70
SUBJECTS = {"chat_completion", "completion", "compat_oai_responses", "compat_anthropic", "embedding", "tokenize"}


def test_every_test_stands_once_and_every_subject_has_a_table() -> None:
    names = Counter(name for row in rows() for name in row.names)
    assert [str(name) for name, times in names.items() if times > 1] == []
    assert {f"test_{subject}.py" for subject in SUBJECTS} <= set(modules())


def test_whatever_does_not_pass_has_a_reason_in_a_sentence() -> None:
    assert [str(row.names[0]) for row in rows() if row.outcome != PASSES and not row.reason] == []
    assert [row.reason for row in rows() if row.reason and not re.match(r"^[A-Z`].*\.$", row.reason)] == []


def test_enough_of_them_pass_and_show_something() -> None:
    modules_asked_for = {f"test_{subject}.py" for subject in SUBJECTS}
    held = [name for row in rows() if row.outcome == PASSES and not row.reason for name in row.names]
    assert len([name for name in held if name.module in modules_asked_for]) >= ASKED_FOR


def test_every_line_of_a_table_is_read() -> None:
    assert len(rows()) == len(re.findall(r"^\| `", PAGE.read_text(), re.MULTILINE))
