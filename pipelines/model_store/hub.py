"""Models of the Hugging Face Hub, as its own library asks it. Which files make a model: `hub_files`.

HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and the library's other variables are heeded. What earlier versions of Tenuto have
fetched, into folders of their own, is taken from there.
"""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto import __version__
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store import disk
from tenuto.pipelines.model_store.download import Download, download
from tenuto.pipelines.model_store.hub_files import model_files
from tenuto.pipelines.model_store.records import stays_inside
from tenuto.pipelines.model_store.sources import Offer, RemoteFile

if TYPE_CHECKING:
    from huggingface_hub import HfApi

logger = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"\w{4,64}", re.ASCII)
_ARRIVING = ".arriving"
"""Where earlier versions kept what was under way."""


class HubModel:
    """A model of the Hub, as `hf:OWNER/REPO` or `hf:OWNER/REPO:QUANT` names it.

    Raises:
        ModelLoadFailed: the text is not of this form.
    """

    def __init__(self, source: str, downloads: Path) -> None:
        self.name, self.source = source.removeprefix("hf:"), source
        self._repository, _, quant = self.name.partition(":")
        self._quant = quant or None
        if not _REPOSITORY.fullmatch(self._repository):
            raise ModelLoadFailed(f"{source} is not of the form hf:OWNER/REPO or hf:OWNER/REPO:QUANT")
        self._earlier = downloads / self._repository.replace("/", "--")

    def look(self) -> Offer:
        """Ask the Hub. Where it cannot be reached, what earlier versions have fetched serves."""
        try:
            revision, files = self._listed()
        except _Unreachable as error:
            earlier = self._fetched_earlier()
            if not earlier:
                raise ModelLoadFailed(f"hf:{self._repository} cannot be listed: {error}") from error
            logger.warning("%s; using what was downloaded before", error)
            return model_files(earlier, self._quant, self._repository, None)
        return model_files(files, self._quant, self._repository, revision)

    def bring(self, offer: Offer, file: RemoteFile, folder: Path, told: Callable[[int], None]) -> Path:
        """Download it, by the library's client and with its token."""
        earlier = self._earlier / file.path
        if earlier.is_file() and earlier.stat().st_size == file.size:
            if file.sha256 in (None, disk.sha256(earlier)):
                return earlier
        elif offer.revision is None:
            raise ModelLoadFailed(f"{file.path} of hf:{self._repository} is gone from {self._earlier}")
        from huggingface_hub import get_session, hf_hub_url

        # The library's own download begins a file again that broke off. A file of a commit never changes.
        target = folder / (f"sha256-{file.sha256}" if file.sha256 else f"{offer.revision}/{file.path}")
        url = hf_hub_url(self._repository, file.path, revision=offer.revision, endpoint=_endpoint())
        what = Download(url, file.size, name=f"{file.path} of hf:{self._repository}")
        download(get_session(), what, target, told, _headers())
        return target

    def _fetched_earlier(self) -> list[RemoteFile]:
        paths = [path for path in self._earlier.rglob("*") if path.is_file() and path.suffix not in (".part", ".lock")]
        return [
            RemoteFile(path.relative_to(self._earlier).as_posix(), path.stat().st_size)
            for path in paths
            if _ARRIVING not in path.parts
        ]

    def _listed(self) -> tuple[str, list[RemoteFile]]:
        """The commit that the repository is at, and its files.

        Raises:
            ModelLoadFailed: the Hub does not have it, or not for us.
        """
        from httpx2 import HTTPError
        from huggingface_hub.errors import HfHubHTTPError

        api = _api()
        try:
            found = api.model_info(self._repository, files_metadata=True, timeout=_TIMEOUT_S)
            files = [_remote_file(each) for each in found.siblings or ()]
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403, 404):
                hint = "there is no such model, or it needs HF_TOKEN to be set"
                raise ModelLoadFailed(f"hf:{self._repository}: {hint} (status {status})") from error
            raise _Unreachable(f"the Hub at {api.endpoint} answered {status}") from error
        except (OSError, HTTPError, ValueError, KeyError, TypeError) as error:
            raise _Unreachable(f"the Hub at {api.endpoint} gave no list: {error}") from error
        if not found.sha or not _COMMIT.fullmatch(found.sha):
            raise _Unreachable(f"the Hub at {api.endpoint} does not say which commit it is at")
        return found.sha, [file for file in files if stays_inside(file.path)]


class _Unreachable(Exception):
    """The Hub gave no answer, or one that is no list."""


def _api() -> "HfApi":
    from huggingface_hub import HfApi  # which takes half a second, and is needed for models of the Hub alone

    return HfApi(endpoint=_endpoint(), library_name="tenuto", library_version=__version__)


def _headers() -> dict[str, str]:
    """Who asks; the user's token goes to the Hub alone, as the client drops it where it is sent to another host."""
    from huggingface_hub import constants, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {"User-Agent": f"tenuto/{__version__}", **({"Authorization": f"Bearer {token}"} if token else {})}


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT")


def _remote_file(sibling: Any) -> RemoteFile:
    return RemoteFile(sibling.rfilename, int(sibling.size), sibling.lfs.sha256 if sibling.lfs else None)
