"""Whether the files of a stored version are what came: each is read and held to its digest in the lock file."""

from dataclasses import dataclass
from typing import Literal

from tenuto.pipelines.model_store import disk
from tenuto.pipelines.model_store.folder import StoredModel
from tenuto.pipelines.model_store.sources import Progress, RemoteFile, Tell


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not what came."""

    path: str
    what: Literal["missing", "size", "digest", "unreadable"]


def verify(model: StoredModel, tell: Tell = lambda _: None) -> list[Damage]:
    """Read all files of a version; gives those that are damaged."""
    found = []
    for file in model.version.files:
        listed = RemoteFile(file.path, file.size, file.sha256)
        what = _damage(model, listed, tell)
        found += [Damage(file.path, what)] if what else []
    return found


def _damage(
    model: StoredModel, listed: RemoteFile, tell: Tell
) -> Literal["missing", "size", "digest", "unreadable"] | None:
    path, done = model.files / listed.path, 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        tell(Progress("checking", listed, done))

    try:
        if path.stat().st_size != listed.size:
            return "size"
        return None if disk.sha256(path, told) == listed.sha256 else "digest"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unreadable"
