"""Whether the store can write: what went wrong last, until something has been written again. No SQL, no thread."""

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from tenuto.errors import StoreUnavailable

_LEAST_BYTES = 1 << 14
_MOST_BYTES = 1 << 20


class Writable:
    """Told by the thread that writes, asked by any.

    A commit that is wrong in itself says nothing of the store; a disk that is full or gone, or a database that cannot
    be reached, fails everybody's.
    """

    def __init__(self) -> None:
        self._trouble: str | None = None
        self._size = _LEAST_BYTES

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written; None where it can."""
        return self._trouble

    @property
    def size(self) -> int:
        """How many bytes must be written before it is believed that writing goes on: about as many as failed."""
        return min(max(self._size, _LEAST_BYTES), _MOST_BYTES)

    def check(self) -> None:
        """Raises StoreUnavailable while nothing can be written."""
        if self._trouble is not None:
            raise StoreUnavailable(f"the store cannot write: {self._trouble}")

    def wrote(self) -> None:
        """A transaction has been committed."""
        self._trouble = None

    def failed(self, error: BaseException | None, size: int) -> None:
        """A transaction of so many bytes has failed."""
        if isinstance(error, OperationalError | InterfaceError) or (
            isinstance(error, DBAPIError) and error.connection_invalidated
        ):
            self._trouble, self._size = str(error.orig or error), size
