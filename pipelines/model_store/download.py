"""Files over HTTP that go on where they broke off, as RFC 9110 has it: by Range, and If-Range where they may change.

https://www.rfc-editor.org/rfc/rfc9110#section-14
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx2

from tenuto import __version__
from tenuto.errors import ModelLoadFailed

logger = logging.getLogger(__name__)

WAITS_S = (0.5, 2.0, 8.0)
"""Before each further try of one that brought nothing. Where something has come, it goes on at once."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_MOST_BODY = 16 << 20
_TIMEOUT = httpx2.Timeout(60.0, connect=15.0)
"""Of each wait for something to come, not of all of it."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file at a URL: its size, and what tells this state of it from others; None where the place of what has come
    does. `name` is what it is called in errors, if not by its URL."""

    url: str
    size: int
    validator: str | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.url


def client() -> httpx2.Client:
    """A client that follows redirects. The environment's proxies are used."""
    return httpx2.Client(timeout=_TIMEOUT, follow_redirects=True, headers={"User-Agent": f"tenuto/{__version__}"})


def get(http: httpx2.Client, url: str, accept: str = "*/*") -> bytes:
    """A small document.

    Raises:
        ModelLoadFailed: the server cannot be reached, or has it not.
    """
    body = b""
    try:
        with http.stream("GET", url, headers={"Accept": accept, "Accept-Encoding": "identity"}) as response:
            require_found(response, url)
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > _MOST_BODY:
                    raise ModelLoadFailed(f"{url} is larger than {_MOST_BODY >> 20} MiB, and so no list of files")
    except httpx2.HTTPError as error:
        raise ModelLoadFailed(f"{url} cannot be read: {_words(error)}") from error
    return body


def look(http: httpx2.Client, url: str) -> Download:
    """Ask for a file's size and state.

    Raises:
        ModelLoadFailed: the server cannot be reached, has it not, or does not say how large it is.
    """
    try:
        response = http.head(url, headers={"Accept-Encoding": "identity"})
    except httpx2.HTTPError as error:
        raise ModelLoadFailed(f"{url} cannot be reached: {_words(error)}") from error
    require_found(response, url)
    size = response.headers.get("Content-Length", "")
    if not size.isdecimal():
        raise ModelLoadFailed(f"the server of {url} does not say how large it is")
    return Download(url, int(size), _validator(response))


def download(
    http: httpx2.Client,
    file: Download,
    target: Path,
    told: Callable[[int], None],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Bring a file to a place. What is there of the same state goes on; of another, it begins anew.

    Raises:
        ModelLoadFailed: it broke off and can be resumed, or it has changed since it was looked at.
    """
    state = target.with_name(f"{target.name}.state")
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.validator is not None and not (state.is_file() and state.read_text() == file.validator):
        target.unlink(missing_ok=True)
        state.write_text(file.validator)
    fruitless = 0
    while (there := _size(target)) < file.size or not target.exists():
        problem = "it ended early"
        try:
            _go_on(http, file, target, there, told, headers)
        except httpx2.HTTPError as error:
            problem = _words(error)
        now = _size(target)
        fruitless = 0 if now > there else fruitless + 1
        if fruitless > len(WAITS_S) and now < file.size:
            raise ModelLoadFailed(f"{file} broke off and can be resumed: {problem}")
        if fruitless and now < file.size:
            logger.info("%s: %s; trying again", file, problem)
            time.sleep(WAITS_S[fruitless - 1])
    told(_size(target))


def require_found(response: httpx2.Response, url: str) -> None:
    """Raise ModelLoadFailed where the server has not what was asked for, and HTTPError where it cannot give it now."""
    if response.status_code in (401, 403, 404, 410):
        raise ModelLoadFailed(f"there is nothing at {url}, or not for us (status {response.status_code})")
    response.raise_for_status()


def _go_on(
    http: httpx2.Client,
    file: Download,
    target: Path,
    there: int,
    told: Callable[[int], None],
    more_headers: Mapping[str, str],
) -> None:
    headers = {**more_headers, "Accept-Encoding": "identity"}
    if there:
        headers["Range"] = f"bytes={there}-"
        if file.validator is not None:
            headers["If-Range"] = file.validator
    with http.stream("GET", file.url, headers=headers, follow_redirects=True, timeout=_TIMEOUT) as response:
        require_found(response, file.url)
        now = _validator(response)
        if file.validator is not None and now is not None and now != file.validator:
            raise ModelLoadFailed(f"{file} has changed since it was looked at; pull it again")
        begin = _begin(response)
        if begin not in (0, there):
            raise ModelLoadFailed(f"the server of {file} sent another range than was asked for")
        with target.open("r+b" if target.exists() else "wb", buffering=0) as written:
            written.truncate(begin)
            written.seek(begin)
            told(begin)
            for chunk in response.iter_raw():
                written.write(chunk)
                told(written.tell())
                if written.tell() > file.size:
                    break
    if _size(target) > file.size:
        target.unlink()
        raise ModelLoadFailed(f"{file} is larger than the {file.size} bytes that were announced")


def _begin(response: httpx2.Response) -> int:
    """Where in the file an answer begins."""
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    return int(found[1]) if response.status_code == 206 and found else 0


def _validator(response: httpx2.Response) -> str | None:
    """What If-Range takes: a strong ETag, else the time of the last change."""
    tag: str | None = response.headers.get("ETag")
    if tag is not None and not tag.startswith("W/"):
        return tag
    changed: str | None = response.headers.get("Last-Modified")
    return changed


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _words(error: httpx2.HTTPError) -> str:
    return str(error) or type(error).__name__
