"""`Rejects`: what must be left out of an API's answer is counted, and the good records beside it are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from pricing_data.errors import BadInput, SourceUnavailable

R = TypeVar("R")
T = TypeVar("T")

_LONGEST_NAME = 200
_LONGEST_EXAMPLE = 400


@dataclass(slots=True)
class Rejects:
    """What had to be left out of the answer to what was asked: how much, and the first of it with the reason."""

    asked: str
    count: int = field(default=0, init=False)
    example: str = field(default="", init=False)

    def add(self, reason: object) -> None:
        """Counts one more."""
        self.count += 1
        self.example = self.example or _line(reason, _LONGEST_EXAMPLE)

    def good(
        self, read: Callable[[R], T | None], records: Iterable[R], about: Callable[[R], object] = str
    ) -> Iterator[T]:
        """What the records say, without those that say nothing of interest (`None`).

        Those that `read` refuses with `BadInput` are counted; `about` tells how to name one of them, else it is shown.
        """
        for record in records:
            try:
                row = read(record)
            except BadInput as error:
                self.add(f"{_line(about(record), _LONGEST_NAME)}: {error}")
            else:
                if row is not None:
                    yield row

    def report(self) -> None:
        """Raises if anything was left out; to be called when the good rows are delivered."""
        if self.count:
            raise SourceUnavailable(
                f"{self.asked}: {self.count} left out, the others are kept; the first: {self.example};"
                " the next fetch asks again"
            )


def _line(text: object, longest: int) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[:longest]}..."
