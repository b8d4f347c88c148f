"""What a model's files weigh, found without loading it."""

from dataclasses import dataclass
from pathlib import Path

from tenuto.pipelines.finding import Source
from tenuto.pipelines.scripted import ScriptedBackend, read_script


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of the weights, which are not more than their files', and of the cache where that is known beforehand.

    `stamp` is another one once a file has changed.
    """

    weights: int
    cache: int | None
    stamp: tuple[object, ...]


def size_of(source: Source) -> Size:
    """The size of a model that was found. Reads the disk.

    Raises:
        ModelLoadFailed: its script cannot be read.
        OSError: a file has gone.
    """
    path = source.path
    script = read_script(path) if source.kind == "scripted" else None
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else _parts(path)
    stats = [file.stat() for file in files]
    stamp = (str(path), *((stat.st_size, stat.st_mtime_ns) for stat in stats))
    if script is None:
        return Size(sum(stat.st_size for stat in stats), None, stamp)
    if script.embeds is not None:
        return Size(0, 0, stamp)
    info = ScriptedBackend(script).info
    return Size(info.weights.nbytes, info.slots * info.cells * info.bytes_per_token, stamp)


def _parts(path: Path) -> list[Path]:
    """All files of a GGUF model, which may have been cut into several: NAME-00001-of-00003.gguf."""
    stem, _, count = path.stem.rpartition("-of-")
    if not (stem and count.isdecimal() and stem[-5:].isdecimal()):
        return [path]
    return sorted(path.parent.glob(f"{stem[:-5]}*-of-{count}.gguf"))
