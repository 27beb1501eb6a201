"""`Rejects`: counts the unusable records of an API's answer, so that the others can be kept."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from pricing_data.errors import BadInput, IncompleteAnswer

R = TypeVar("R")
T = TypeVar("T")

_LONGEST_NAME = 200
_LONGEST_EXAMPLE = 400


@dataclass(slots=True)
class Rejects:
    """The records of an answer that were left out: how many, and the first one with its reason.

    `subject` says what was requested, for the error message.
    """

    subject: str
    count: int = field(default=0, init=False)
    example: str = field(default="", init=False)

    def add(self, reason: object) -> None:
        """Counts one more; the first reason becomes the example."""
        self.count += 1
        self.example = self.example or _line(reason, _LONGEST_EXAMPLE)

    def good(
        self, read: Callable[[R], T | None], records: Iterable[R], name_of: Callable[[R], object] = str
    ) -> Iterator[T]:
        """Calls `read` with each record, and yields the results that are not None.

        Records that `read` rejects with `BadInput` are counted; `name_of` names such a record in the example.
        """
        for record in records:
            try:
                row = read(record)
            except BadInput as error:
                self.add(f"{_line(name_of(record), _LONGEST_NAME)}: {error}")
            else:
                if row is not None:
                    yield row

    def report(self) -> None:
        """Raises if any record was left out; call it after yielding the good rows."""
        if self.count:
            records = "1 record" if self.count == 1 else f"{self.count} records"
            raise IncompleteAnswer(
                f"{self.subject}: {records} left out, the others were kept; first: {self.example}",
                "the next fetch retries them",
            )


def _line(text: object, longest: int) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[:longest]}..."
