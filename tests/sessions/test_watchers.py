"""Those who watch sessions: what goes wrong with them is theirs."""

from pathlib import Path

import pytest

from tenuto.sessions.directory import Directory
from tenuto.sessions.draft import Draft
from tenuto.sessions.storage.store import Store
from tenuto.sessions.watchers import notify


def fail(news: object) -> None:
    raise RuntimeError(f"I do not want to know of {news}")


def test_a_watcher_that_raises_keeps_no_other_from_its_news(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    notify([fail, heard.append, fail], "news")
    assert heard == ["news"]
    assert caplog.text.count("I do not want to know of news") == 2


async def test_a_commit_is_kept_and_in_memory_although_a_watcher_raises(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'store.db'}")
    directory = Directory(store)
    directory.watchers.append(fail)
    session = await directory.get_or_create("alice", "s")
    draft = Draft(session)
    draft.save()
    draft.ahead.open_run = "r"
    await directory.commit(draft)
    assert session.open_run == "r"
    assert await directory.get("alice", "s") is session
    await directory.delete("alice", "s")
    store.close()
