"""Mistakes that were made once, put back into the present code as edits of its text: the simulation must find each."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """One place in one file; `old` stands there exactly once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mistake, in the words of what it does."""

    name: str
    what: str
    edits: tuple[Edit, ...]

    def apply(self, root: Path) -> None:
        """Make it in the tree at `root`.

        Raises:
            ValueError: the text that it changes is not there once.
        """
        for edit in self.edits:
            path = root / edit.path
            text = path.read_text()
            if text.count(edit.old) != 1:
                raise ValueError(f"{self.name}: {edit.path} has {text.count(edit.old)} times:\n{edit.old}")
            path.write_text(text.replace(edit.old, edit.new))


LEG, SESSIONS = "runtime/loop/leg.py", "runtime/loop/sessions.py"
DIRECTORY, COMMITS = "sessions/directory.py", "sessions/commits.py"

MUTATIONS = (
    Mutation(
        "failing-step",
        "a step that fails while its client has gone ends the server",
        (
            Edit(
                LEG,
                """\
        except GenerationFailed as failure:
            logger.warning("what run %s had said when it was stopped is lost: %s", self.run.id, failure)
        except Exception:  # what broke the run off may break its reading too; it ends all the same
            logger.exception("what run %s had said when it was stopped is lost", self.run.id)
""",
                "",
            ),
            Edit(
                LEG,
                """\
            except Exception as failure:
                self._lose_end(failure, error)
""",
                """\
            except ShuttingDown as failure:
                self._lose_end(failure, error)
""",
            ),
            Edit(
                "runtime/loop/legs.py",
                """\
        except Exception:  # a bug in the leg is its run's; the others go on
            logger.exception("the leg of run %s ended in an error", run.id)
""",
                "",
            ),
        ),
    ),
    Mutation(
        "hole",
        "a commit that fails after its waiter was cancelled is forgotten, and memory is ahead of what is kept",
        (
            Edit(
                DIRECTORY,
                """\
        if session.stored:
            await self._commits.make(session.key, *draft.changes(), *changes)
        draft.apply()
""",
                """\
        written = draft.changes()
        draft.apply()
        if session.stored:
            await self._commits.make(session.key, *written, *changes)
""",
            ),
            Edit(COMMITS, "with anyio.move_on_after(_COMMIT_S, shield=True)", "with anyio.move_on_after(_COMMIT_S)"),
            Edit(
                COMMITS,
                """\
        except BaseException as error:
            if not isinstance(error, TenutoError) or isinstance(error, CommitUnsettled):
                self._lose(key, outcome)
            raise
""",
                """\
        except TenutoError:
            raise
""",
            ),
        ),
    ),
    Mutation(
        "unowned-import",
        "an import or a delete does not wait for what is under way on its session",
        (
            Edit(
                SESSIONS,
                "await self._owners.ask((session.principal, session.id), partial(self._install, session))",
                "await self._install(session)",
            ),
            Edit(
                SESSIONS,
                "await self._owners.ask((principal, id), partial(self._delete, principal, id))",
                "await self._delete(principal, id)",
            ),
        ),
    ),
    Mutation(
        "unowned-cancel",
        "a run is another object for each request, and a cancel does not wait for an approval",
        (
            Edit(
                "runtime/loop/runs.py",
                "run = self._live.get(run_id) or await self._load(run_id)",
                "run = self._open.get(run_id) or await self._read(run_id)",
            ),
            Edit(
                SESSIONS,
                "return await self._owners.ask((run.record.principal, run.session_id), partial(self._cancel, run.id))",
                "return await self._cancel(run.id)",
            ),
        ),
    ),
    Mutation(
        "remembered-too-early",
        "an approval for the rest of the session holds although its commit failed",
        (
            Edit(
                "runtime/loop/decisions.py",
                "draft.ahead.approved |= {tools.remembered_as(pause.tool, pause.arguments)}",
                "draft.ahead.approved |= {tools.remembered_as(pause.tool, pause.arguments)}\n"
                "        session.approved = draft.ahead.approved",
            ),
        ),
    ),
    Mutation(
        "stalled-reader",
        "a client of the first leg that goes away cancels the leg that another client's approval has begun",
        (
            Edit(
                "runtime/loop/follower.py",
                """\
            if self._leg.leave():
                await self.run.stop(self._leg)
""",
                """\
            if self._leg.leave():
                await self.run.stop(self.run.leg)
""",
            ),
        ),
    ),
)
