"""A projector: the part of a vision model that makes embeddings of images. Through libmtmd.

It is loaded beside the weights of its model and immutable: any thread may read images with it. Encoding is for one
thread at a time, and sees to that itself.
"""

import ctypes
import hashlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import llama_cpp as lib
import numpy as np
from cachetools import LRUCache

from tenuto.errors import GenerationFailed, ModelLoadFailed
from tenuto.pipelines.image_files import Pixels, decoded
from tenuto.pipelines.images import Embeddings, Image, ImageText, Piece, Places, UnreadableImage
from tenuto.pipelines.llama_cpp.native import Model, failure, log_callback, log_tail
from tenuto.sessions.image_tokens import image_span

EMBEDDING_BYTES = 256 << 20
"""So many bytes of embeddings are kept, the last used ones."""
_KNOWN_TOKENS = 1 << 20
_MOST_FAILURES = 256
_METADATA = 1 << 20
_EXTREMES = ((1, 1), (64, 64), (1 << 12, 1 << 12), (1 << 12, 1 << 8), (1 << 8, 1 << 12))


class Projector:
    """Reads images and makes embeddings of them: an ImageReader and an ImageEncoder.

    Raises:
        ModelLoadFailed: the library was built without libmtmd, or it refuses the file, as one for another model.
    """

    def __init__(self, path: Path, model: Model, *, threads: int, embedding_bytes: int = EMBEDDING_BYTES) -> None:
        self._lib = mtmd = _library()
        self.path, self._model = path, model  # the native projector looks into the model's vocabulary
        self._pointer = _opened(mtmd, path, model, threads)
        weakref.finalize(self, mtmd.mtmd_free, self._pointer).atexit = False
        if not mtmd.mtmd_support_vision(self._pointer):
            raise ModelLoadFailed(f"{path} reads no images")
        self._attends_all = bool(mtmd.mtmd_decode_use_non_causal(self._pointer, None))
        self.has_places = bool(mtmd.mtmd_decode_use_mrope(self._pointer))
        self._width = int(lib.llama_model_n_embd_inp(model.pointer))
        self._identity = _identity(path)
        self._reading = threading.Lock()
        self._read: LRUCache[str, ImageText] = LRUCache(_KNOWN_TOKENS, lambda text: len(text.tokens))
        self._unreadable: LRUCache[str, str] = LRUCache(_MOST_FAILURES)
        self._desk = _Desk(embedding_bytes)
        self.longest = max(piece for width, height in _EXTREMES for piece in self._piece_lengths(width, height))
        """So many tokens the longest piece of an image has, of those that were tried."""

    @property
    def identity(self) -> bytes:
        """Names what the tokens of an image depend on, besides the image."""
        return self._identity

    @property
    def least_batch(self) -> int:
        """So many tokens a step must take at least: what attends both ways is not divided."""
        return self.longest if self._attends_all else 1

    def read(self, image: Image) -> ImageText:
        """What stands for an image.

        Raises:
            UnreadableImage: it cannot be decoded, or is too large.
        """
        with self._reading:  # one at a time: an image may be large
            if (why := self._unreadable.get(image.digest)) is not None:
                raise UnreadableImage(why)
            known = self._read.get(image.digest)
            if known is None:
                try:
                    known = self._text(image)
                except UnreadableImage as error:
                    self._unreadable[image.digest] = str(error)
                    raise
                if len(known.tokens) <= _KNOWN_TOKENS:
                    self._read[image.digest] = known
            return known

    def embeddings(self, piece: Piece, ready: Callable[[], None]) -> Embeddings | None:
        """Those of a piece. None where they are being made: `ready` is called when they are there, by another thread.

        Raises:
            GenerationFailed: they cannot be made.
        """
        return self._desk.ask(piece, lambda: self._encoded(piece), ready)

    def _text(self, image: Image) -> ImageText:
        pixels = decoded(image.data)
        tokens: list[int] = []
        pieces: list[Piece] = []
        # With its pixels: some sizes turn out to be impossible only when they are resized.
        with self._chunks(pixels.shape[1], pixels.shape[0], pixels) as chunks:
            for chunk in chunks:
                if chunk.is_text:
                    tokens += chunk.tokens
                    continue
                if self._attends_all and chunk.length > self.longest:
                    raise UnreadableImage(f"is read as {chunk.length} tokens at once; {self.longest} are the most")
                name = f"{self._identity.hex()} {image.digest} {len(pieces)}"
                pieces.append(Piece(image, len(pieces), image_span(name, chunk.length)))
                tokens += pieces[-1].span
        return ImageText(tuple(tokens), tuple(pieces))

    def _encoded(self, piece: Piece) -> Embeddings:
        try:
            pixels = decoded(piece.image.data)
        except UnreadableImage as error:
            raise GenerationFailed(f"an image {error}") from error
        with self._chunks(pixels.shape[1], pixels.shape[0], pixels) as chunks:
            chunk = [one for one in chunks if not one.is_text][piece.number]
            if chunk.length != len(piece.span):
                raise GenerationFailed("an image is read as another number of tokens than before")
            if self._lib.mtmd_encode_chunk(self._pointer, chunk.pointer):
                raise GenerationFailed(f"an image could not be encoded: {log_tail()}")
            output = self._lib.mtmd_get_output_embd(self._pointer)
            rows = np.ctypeslib.as_array(output, shape=(chunk.length, self._width)).copy()
            return Embeddings(
                rows,
                extent=int(self._lib.mtmd_input_chunk_get_n_pos(chunk.pointer)),
                places=self._places(chunk) if self.has_places else None,
                attends_all=self._attends_all,
            )

    def _places(self, chunk: "_Chunk") -> Places:
        """Where the rows stand from position 0 on, and which of these numbers grow with the position that is first."""
        tokens = self._lib.mtmd_input_chunk_get_tokens_image(chunk.pointer)
        read = []
        for first in (0, 1):
            places = (self._lib.mtmd_decoder_pos * chunk.length)()
            self._lib.mtmd_helper_image_get_decoder_pos(tokens, first, places)
            read.append(np.array([(one.t, one.y, one.x, one.z) for one in places], np.int32).T)
        return Places(read[0].copy(), read[1] - read[0])

    def _piece_lengths(self, width: int, height: int) -> list[int]:
        with self._chunks(width, height, None) as chunks:
            return [chunk.length for chunk in chunks if not chunk.is_text]

    @contextmanager
    def _chunks(self, width: int, height: int, pixels: Pixels | None) -> Iterator[list["_Chunk"]]:
        """What the library makes of an image; without its pixels, as far as its size tells. Valid in here."""
        mtmd = self._lib
        marker = mtmd.mtmd_get_marker(self._pointer)
        text = mtmd.mtmd_input_text(text=marker, text_len=len(marker), add_special=False, parse_special=True)
        data = None
        if pixels is not None:
            pixels = np.ascontiguousarray(pixels)
            data = (ctypes.c_uint8 * pixels.size).from_address(pixels.ctypes.data)
        bitmap = mtmd.mtmd_bitmap_init(width, height, data)
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(self._pointer, chunks, ctypes.byref(text), bitmaps, 1):
                why = log_tail().rpartition("\n")[2]
                raise UnreadableImage(f"cannot be prepared for the model at {width} x {height} pixels: {why}")
            count = mtmd.mtmd_input_chunks_size(chunks)
            yield [_chunk(mtmd, mtmd.mtmd_input_chunks_get(chunks, at)) for at in range(count)]
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Tokens of the vocabulary, or a piece of an image of so many tokens."""

    pointer: Any
    is_text: bool
    length: int
    tokens: tuple[int, ...] = ()


def _chunk(mtmd: ModuleType, pointer: Any) -> _Chunk:
    length = int(mtmd.mtmd_input_chunk_get_n_tokens(pointer))
    if mtmd.mtmd_input_chunk_get_type(pointer) != mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
        return _Chunk(pointer, False, length)
    count = ctypes.c_size_t()
    found = mtmd.mtmd_input_chunk_get_tokens_text(pointer, ctypes.byref(count))
    return _Chunk(pointer, True, length, tuple(int(found[at]) for at in range(count.value)))


class _Desk:
    """Makes one thing after the other in a thread that ends with the last one, and keeps what fits.

    OpenMP counts the team of every thread that has ever computed, and slows all of them once they are many.
    """

    def __init__(self, nbytes: int) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[tuple[int, ...], Embeddings] = LRUCache(nbytes, lambda made: made.nbytes)
        self._failed: LRUCache[tuple[int, ...], Exception] = LRUCache(_MOST_FAILURES)
        """What could not be made, until it is told."""
        self._asked: dict[tuple[int, ...], set[Callable[[], None]]] = {}
        self._orders: deque[tuple[tuple[int, ...], Callable[[], Embeddings]]] = deque()
        self._is_working = False

    def ask(self, piece: Piece, make: Callable[[], Embeddings], ready: Callable[[], None]) -> Embeddings | None:
        with self._lock:
            if (failed := self._failed.pop(piece.span, None)) is not None:
                raise GenerationFailed(str(failed)) from failed
            if (found := self._kept.get(piece.span)) is not None:
                return found
            if piece.span in self._asked:
                self._asked[piece.span].add(ready)
                return None
            self._asked[piece.span] = {ready}
            self._orders.append((piece.span, make))
            if not self._is_working:
                self._is_working = True
                threading.Thread(target=self._work, name="encode-images", daemon=True).start()
            return None

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._orders:
                    self._is_working = False
                    return
                key, make = self._orders.popleft()
            try:
                made = make()
                with self._lock:
                    self._kept[key] = made  # or ValueError, where it alone is more than may be kept
            except Exception as error:  # it is told to whoever has asked
                with self._lock:
                    self._failed[key] = error
            with self._lock:
                waiting = self._asked.pop(key)
            for ready in waiting:
                ready()


def is_built() -> bool:
    """Whether the library was built with what reads images."""
    try:
        _library()
    except ModelLoadFailed:
        return False
    return True


def _library() -> ModuleType:
    try:
        from llama_cpp import mtmd_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelLoadFailed(
            "llama-cpp-python was built without libmtmd, which reads images: `make setup` builds it, and so does"
            " CMAKE_ARGS=-DLLAVA_BUILD=ON pip install --force-reinstall --no-binary :all: llama-cpp-python"
        ) from error
    mtmd_cpp.mtmd_helper_log_set(log_callback, ctypes.c_void_p(0))
    return mtmd_cpp


def _opened(mtmd: ModuleType, path: Path, model: Model, threads: int) -> Any:
    parameters = mtmd.mtmd_context_params_default()
    parameters.use_gpu = model.is_offloaded
    parameters.print_timings = False
    parameters.warmup = False
    parameters.n_threads = threads
    pointer = mtmd.mtmd_init_from_file(str(path).encode(), model.pointer, parameters)
    if not pointer:
        raise failure(f"{path} cannot be loaded as the projector of {model.path}")
    return pointer


def _identity(path: Path) -> bytes:
    """Of its size and its metadata: reading all of it would cost more than loading it."""
    with path.open("rb") as file:
        head = file.read(_METADATA)
    return hashlib.sha256(f"{path.stat().st_size} ".encode() + head).digest()[:16]
