"""Models at a URL: a GGUF file, or the lock file of a version as the store keeps it, with the model's files beside it.

So any web server that shows the folder of a version is a mirror.
"""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store.download import (
    Download,
    client,
    download,
    get,
    look,
    without_credentials,
)
from tenuto.pipelines.model_store.records import read_version, stays_inside
from tenuto.pipelines.model_store.sources import Offer, RemoteFile

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})", re.IGNORECASE)


class MirroredModel:
    """`https://HOST/.../MODEL.gguf`, where `#sha256=HEX` may follow, or `https://HOST/.../MODEL/version.json`.

    Raises:
        ModelLoadFailed: the URL is neither.
    """

    def __init__(self, source: str, downloads: Path) -> None:
        del downloads
        self.source = without_credentials(source)
        self._url, fragment = urldefrag(source)
        path = PurePosixPath(unquote(urlsplit(self._url).path))
        self._is_list = path.suffix == ".json"
        if not self._is_list and path.suffix.lower() != ".gguf":
            raise ModelLoadFailed(f"{self.source} is the URL of neither a GGUF file nor the version.json of a mirror")
        self.name = path.parent.name if self._is_list else re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
        found = _SHA256.fullmatch(fragment)
        if fragment and not found:
            raise ModelLoadFailed(f"what stands after the # of {self.source} is not sha256= and 64 hex digits")
        self._sha256 = found[1].lower() if found else None
        self._files: dict[str, Download] = {}

    def look(self) -> Offer:
        """Ask for the list, or for the state of each part of the file."""
        with client() as http:
            if self._is_list:
                listed = read_version(get(http, self._url, "application/json"), self.source)
                self._files = {file.path: Download(self._beside(file.path), file.size) for file in listed.files}
                files = tuple(RemoteFile(file.path, file.size, file.sha256) for file in listed.files)
                return Offer(self.source, listed.digest, listed.kind, files)
            self._files = {name: look(http, url) for name, url in self._parts().items()}
        files = tuple(RemoteFile(name, file.size, self._sha256) for name, file in self._files.items())
        states = [file.validator for file in self._files.values()]
        return Offer(self.source, None if None in states else " ".join(map(str, states)), "gguf", files)

    def bring(self, offer: Offer, file: RemoteFile, folder: Path, told: Callable[[int], None]) -> Path:
        """Download it."""
        del offer
        # What a list names by its digest is kept by its digest: a list that changes begins another file.
        target = folder / (file.sha256 if self._is_list and file.sha256 else file.path)
        what = self._files[file.path]
        if what.validator is None and file.sha256 is None:
            target.unlink(missing_ok=True)  # nothing would tell that it goes on from another state of the file
        with client() as http:
            download(http, what, target, told)
        return target

    def _beside(self, path: str) -> str:
        return urljoin(self._url, f"files/{quote(path)}")

    def _parts(self) -> dict[str, str]:
        """The file's name with its URL; of a split one, all of them."""
        name = PurePosixPath(unquote(urlsplit(self._url).path)).name
        found = _PART.search(name)
        if not stays_inside(name):
            raise ModelLoadFailed(f"{self.source} does not end in the name of a file")
        if found is None:
            return {name: self._url}
        if self._sha256 is not None:
            raise ModelLoadFailed(f"{self.source}: one digest cannot be that of {int(found[2])} files")
        names = [f"{name[: found.start()]}-{n:05}-of-{found[2]}.gguf" for n in range(1, int(found[2]) + 1)]
        return {each: urljoin(self._url, quote(each)) for each in names}
