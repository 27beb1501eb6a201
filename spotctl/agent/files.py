"""Small JSON files that other processes read while they are replaced (see
`agileml.runtime.ground`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from agileml.runtime.ground import locked, replaced, sync
from spotctl.agent.errors import BrokenProtocol

T = TypeVar("T")


def replace_json(path: Path, value: dict[str, Any], *, lasting: bool = False) -> None:
    """Replaces a file atomically; with `lasting`, it also survives a crash of the machine."""
    with replaced(path, lasting=lasting) as new:
        new.write_text(json.dumps(value))


# The names by which the folders of the local cloud know them.
exclusive, sync_folder = locked, sync


class Watched(Generic[T]):
    """A JSON file that is parsed again only when it was replaced."""

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], T | None]) -> None:
        self._path, self._parse = path, parse
        self._stamp: tuple[int, int, int] | None = None
        self._value: T | None = None

    def value(self) -> T | None:
        """The current content; None without a file. BrokenProtocol: the content is not valid."""
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._value = self._parse(json.loads(self._path.read_text()))
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError):
            self._value = self._stamp = None
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenProtocol(f"{self._path}: is not valid ({error})") from None
        return self._value
