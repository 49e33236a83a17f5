"""Objects that are closed, also as context managers."""

from types import TracebackType
from typing import Optional, TypeVar

_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """The base class of objects that are closed at the end of a `with` block."""

    closed = False

    def close(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """Runs at the end of a `with` block."""
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"operation on a closed {type(self).__name__.lower()}")

    def __enter__(self: _Self) -> _Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._end()
