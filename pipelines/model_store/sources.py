"""Where models come from: what each source says and does, whatever it is. No source here, and no I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store.records import Kind, StoredFile, Version, require_files

_UNKNOWN = "0" * 64


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that a source has. `sha256` is None where the source does not tell it."""

    path: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A model as its source has it now. The first file of a GGUF model is the one that is opened.

    `source` is what fetches it again; `revision` is what the source calls this state, where it calls it something.
    """

    source: str
    revision: str | None
    kind: Kind
    files: tuple[RemoteFile, ...]
    takes_room: bool = True
    """Whether the files take room on the disk that they do not take yet, as far as that is known before."""

    @property
    def bytes(self) -> int:
        """What its files take."""
        return sum(file.size for file in self.files)

    def is_of(self, version: Version) -> bool:
        """Whether a version has these very files: by their digests, or by what the same source calls its state."""
        same_state = self.revision is not None and (self.source, self.revision) == (version.source, version.revision)
        stored = {file.path: file for file in version.files}
        return len(stored) == len(self.files) and all(
            is_same(file, stored.get(file.path), same_state) for file in self.files
        )


def require_sound(offer: Offer) -> None:
    """Raise ModelLoadFailed where an offer, which is a stranger's word, lists what is no model or cannot be stored."""
    require_files(((file.path, file.size, file.sha256 or _UNKNOWN) for file in offer.files), offer.source)
    names = {file.path for file in offer.files}
    if offer.kind == "mlx" and not ("config.json" in names and any(name.endswith(".safetensors") for name in names)):
        raise ModelLoadFailed(f"{offer.source} lists no MLX model: it has no config.json or no safetensors")


def is_same(file: RemoteFile, stored: StoredFile | None, same_state: bool) -> bool:
    """Whether a stored file is the one that a source has."""
    if stored is None or stored.size != file.size:
        return False
    return same_state if file.sha256 is None else file.sha256 == stored.sha256


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pull is. `done` and `total` are bytes of one file; of the other phases than these two there is none."""

    phase: Literal["looking", "fetching", "checking", "storing"]
    file: RemoteFile | None = None
    done: int = 0

    @property
    def total(self) -> int:
        """How many bytes the file has."""
        return 0 if self.file is None else self.file.size


Tell = Callable[[Progress], None]
"""What is told of the progress. It is called often, in the thread that fetches; what it raises ends the pull."""


class ModelSource(Protocol):
    """One model at one source."""

    @property
    def name(self) -> str:
        """What it is called here unless the user says otherwise."""

    @property
    def source(self) -> str:
        """What fetches it again."""

    def look(self) -> Offer:
        """Ask what there is now.

        Raises:
            ModelLoadFailed: there is no such model, or the source cannot be reached.
        """

    def bring(self, offer: Offer, file: RemoteFile, folder: Path, told: Callable[[int], None]) -> Path:
        """Bring a file to somewhere in a folder, and give its place. What an earlier try has left there goes on.

        `told` gets how many of its bytes are there.

        Raises:
            ModelLoadFailed: it broke off, or the source has another one now.
        """
