"""Models that lie in a file or folder of this machine, which take part as versions."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store.hub_files import MLX_FILES
from tenuto.pipelines.model_store.sources import Offer, RemoteFile
from tenuto.pipelines.projector_files import projector_beside

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_CHUNK = 4 << 20


class LocalModel:
    """A GGUF file, the first of its parts, or the folder of an MLX model.

    `links`: a file gets a second name where the disk can give it one, and is copied elsewhere; a linked file that its
    owner changes in place is damaged here too.
    """

    def __init__(self, path: Path, *, links: bool = True) -> None:
        self._path, self._links = path.absolute(), links
        stem = self._path.stem if self._path.suffix.lower() == ".gguf" else self._path.name
        self.name, self.source = re.sub(r"-\d{5}-of-\d{5}$", "", stem), str(self._path)

    def look(self) -> Offer:
        """See what is there."""
        if self._path.is_dir():
            files = tuple(_remote(path, self._path) for path in _of_mlx(self._path))
            return Offer(self.source, None, "mlx", files, takes_room=not self._links)
        if not self._path.is_file():
            raise ModelLoadFailed(f"there is no model file {self._path}")
        beside = projector_beside(self._path)
        found = [*_parts(self._path), *([beside] if beside else [])]
        files = tuple(_remote(path, self._path.parent) for path in found)
        return Offer(self.source, None, "gguf", files, takes_room=not self._links)

    def bring(self, offer: Offer, file: RemoteFile, folder: Path, told: Callable[[int], None]) -> Path:
        """Link or copy it."""
        del offer
        original = (self._path if self._path.is_dir() else self._path.parent) / file.path
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            if self._links:
                os.link(original.resolve(), target)
                told(file.size)
                return target
        except OSError:
            pass  # another disk, or one without links
        try:
            with original.open("rb") as read, target.open("wb") as written:
                while chunk := read.read(_CHUNK):
                    written.write(chunk)
                    told(written.tell())
            shutil.copystat(original, target)
        except OSError as error:
            raise ModelLoadFailed(f"{original} cannot be copied: {error.strerror}") from error
        return target


def _remote(path: Path, folder: Path) -> RemoteFile:
    return RemoteFile(path.relative_to(folder).as_posix(), path.stat().st_size)


def _parts(path: Path) -> Iterator[Path]:
    """The file, or all that it is split into."""
    found = _PART.search(path.name)
    if found is None:
        yield path
        return
    for number in range(1, int(found[2]) + 1):
        part = path.with_name(f"{path.name[: found.start()]}-{number:05}-of-{found[2]}.gguf")
        if not part.is_file():
            raise ModelLoadFailed(f"{path} is one of {int(found[2])} parts, and {part.name} is missing beside it")
        yield part


def _of_mlx(folder: Path) -> list[Path]:
    """The files that make the model; code that lies beside them is not taken."""
    found = [path for path in sorted(folder.rglob("*")) if MLX_FILES.fullmatch(path.relative_to(folder).as_posix())]
    names = {path.name for path in found}
    if "config.json" not in names or not any(path.suffix == ".safetensors" for path in found):
        raise ModelLoadFailed(
            f"{folder} is a folder without a model: it has no config.json or no model*.safetensors; give a GGUF file or"
            " the folder of an MLX model"
        )
    return found
