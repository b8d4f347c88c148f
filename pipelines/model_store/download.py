"""Files over HTTP that go on where they broke off, as RFC 9110 has it: by Range, and If-Range where they may change.

https://www.rfc-editor.org/rfc/rfc9110#section-14
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import httpx2

from tenuto import __version__
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.model_store.kept import KeepingClient

logger = logging.getLogger(__name__)

T = TypeVar("T")

WAITS_S = (0.5, 2.0, 8.0)
"""Before each further try of one that brought nothing. Where something has come, it goes on at once."""
_LONGEST_WAIT_S = 60.0
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_MOST_BODY = 16 << 20
_TIMEOUT = httpx2.Timeout(60.0, connect=15.0)
"""Of each wait for something to come, not of all of it."""
_ABSENT = frozenset({401, 403, 404, 410})
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416


@dataclass(frozen=True, slots=True)
class Download:
    """A file at a URL: its size, and what tells this state of it from others; None where the place of what has come
    does. `name` is what it is called in errors, if not by its URL."""

    url: str
    size: int
    validator: str | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name or without_credentials(self.url)


def client() -> httpx2.Client:
    """A client that follows redirects. The environment's proxies are used; a user and password in a URL go to its own
    host alone."""
    return KeepingClient(timeout=_TIMEOUT, follow_redirects=True, headers={"User-Agent": f"tenuto/{__version__}"})


def without_credentials(url: str) -> str:
    """A URL as it may be shown and kept: without the user and the password that it may name.

    Raises:
        ModelLoadFailed: it is none.
    """
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ModelLoadFailed(f"{url!r} is not a URL: {error}") from error
    return str(parsed.copy_with(userinfo=b"")) if parsed.userinfo else url


def get(http: httpx2.Client, url: str, accept: str = "*/*") -> bytes:
    """A small document.

    Raises:
        ModelLoadFailed: the server cannot be reached, or has it not.
    """

    def read() -> bytes:
        body = bytearray()
        with http.stream("GET", url, headers={"Accept": accept, "Accept-Encoding": "identity"}) as response:
            require_found(response, without_credentials(url))
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > _MOST_BODY:
                    raise ModelLoadFailed(f"{url} is larger than {_MOST_BODY >> 20} MiB, and so no list of files")
        return bytes(body)

    return _asked(read, url)


def look(http: httpx2.Client, url: str) -> Download:
    """Ask for a file's size and state.

    Raises:
        ModelLoadFailed: the server cannot be reached, has it not, or does not say how large it is.
    """

    def read() -> httpx2.Response:
        response = http.head(url, headers={"Accept-Encoding": "identity"})
        require_found(response, without_credentials(url))
        return response

    response = _asked(read, url)
    size = _number(response.headers.get("Content-Length"))
    if size is None:
        raise ModelLoadFailed(f"the server of {without_credentials(url)} does not say how large it is")
    return Download(url, size, _validator(response))


def download(
    http: httpx2.Client,
    file: Download,
    target: Path,
    told: Callable[[int], None],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Bring a file to a place. What is there of the same state goes on; of another, it begins anew.

    Raises:
        ModelLoadFailed: it broke off and can be resumed, it has changed since it was looked at, or the disk takes no
            more of it.
    """
    state = target.with_name(f"{target.name}.state")
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.validator is not None and not (state.is_file() and state.read_text() == file.validator):
        target.unlink(missing_ok=True)
        state.write_text(file.validator)
    fruitless = 0
    while (there := _size(target)) < file.size or not target.exists():
        problem, wait_s = "it ended early", 0.0
        try:
            _go_on(http, file, target, there, told, headers)
        except (httpx2.HTTPError, UnicodeError) as error:
            problem, wait_s = _words(error), _asked_wait_s(error)
        now = _size(target)
        fruitless = 0 if now > there else fruitless + 1
        if fruitless > len(WAITS_S) and now < file.size:
            raise ModelLoadFailed(f"{file} broke off and can be resumed: {problem}")
        if fruitless and now < file.size:
            logger.info("%s: %s; trying again", file, problem)
            time.sleep(max(WAITS_S[fruitless - 1], wait_s))
    told(_size(target))


def require_found(response: httpx2.Response, what: str) -> None:
    """Raise ModelLoadFailed where the server has not what was asked for, and HTTPError where it cannot give it now."""
    if response.status_code in _ABSENT:
        raise ModelLoadFailed(f"there is nothing at {what}, or not for us (status {response.status_code})")
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
        if there and response.status_code == _RANGE_NOT_SATISFIABLE:
            target.unlink()  # what is there cannot be the beginning of it; the next try begins anew
            return
        require_found(response, str(file))
        begin = _begin(response, file, there)
        with _written(file, target) as written:
            written.truncate(begin)
            written.seek(begin)
            told(begin)
            for chunk in response.iter_raw():
                _write(written, chunk)
                told(written.tell())
                if written.tell() > file.size:
                    break
    if _size(target) > file.size:
        target.unlink()
        raise ModelLoadFailed(f"{file} is larger than the {file.size} bytes that were announced")


@contextmanager
def _written(file: Download, target: Path) -> Iterator[FileIO]:
    """The file on the disk, unbuffered. What it has taken stays there when it takes no more."""
    try:
        with target.open("r+b" if target.exists() else "wb", buffering=0) as written:
            yield written
    except OSError as error:
        raise ModelLoadFailed(
            f"{file} broke off and can be resumed: {target.parent} takes no more of it: {error.strerror}"
        ) from error


def _write(written: FileIO, chunk: bytes) -> None:
    """Write all of it: a disk that is about to be full takes a part first."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[written.write(rest) :]


def _begin(response: httpx2.Response, file: Download, there: int) -> int:
    """Where in the file an answer begins. Raises ModelLoadFailed where it is not of this file; nothing has changed."""
    now = _validator(response)
    if file.validator is not None and now is not None and now != file.validator:
        raise ModelLoadFailed(f"{file} has changed since it was looked at; pull it again")
    begin, size = 0, _number(response.headers.get("Content-Length"))
    if response.status_code == _PARTIAL_CONTENT:
        found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        begin, size = (int(found[1]), _number(found[2])) if found else (-1, None)
    if begin not in (0, there):
        raise ModelLoadFailed(f"the server of {file} sent another range than was asked for")
    if size is not None and size != file.size:
        raise ModelLoadFailed(f"{file} has {size} bytes and not the {file.size} that were announced")
    return begin


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _asked(read: Callable[[], T], url: str) -> T:
    """Ask a server for something small, again where it says that it cannot answer now."""
    for wait_s in (*WAITS_S, None):
        try:
            return read()
        except httpx2.HTTPStatusError as error:
            if wait_s is None or not _may_pass(error.response.status_code):
                raise ModelLoadFailed(f"{without_credentials(url)} cannot be read: {_words(error)}") from error
            time.sleep(max(wait_s, _asked_wait_s(error)))
        except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
            if wait_s is None:
                raise ModelLoadFailed(f"{without_credentials(url)} cannot be reached: {_words(error)}") from error
            time.sleep(wait_s)
        except (httpx2.HTTPError, UnicodeError) as error:  # the second: a host that can be none
            raise ModelLoadFailed(f"{without_credentials(url)} cannot be reached: {_words(error)}") from error
    raise AssertionError("the last try returns or raises")


def _may_pass(status: int) -> bool:
    return status in (408, 425, 429) or status >= 500


def _asked_wait_s(error: Exception) -> float:
    """How long a server asks to be left alone, within bounds."""
    if not isinstance(error, httpx2.HTTPStatusError):
        return 0.0
    return min(float(_number(error.response.headers.get("Retry-After")) or 0), _LONGEST_WAIT_S)


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


def _words(error: Exception) -> str:
    if isinstance(error, httpx2.HTTPStatusError):
        return f"the server answers {error.response.status_code} {error.response.reason_phrase}".strip()
    return str(error) or type(error).__name__
