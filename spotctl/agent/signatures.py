"""Signs checkpoints with a key that does not lie where they lie: a checkpoint may be a program, as PyTorch's are."""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agileml.errors import Unrecoverable
from agileml.runtime.blob_store import BlobBytes

SIGNATURE = "signature"
"""The entry of a checkpoint's record with its signature."""

DIGEST = "sha256"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The value of the variable `name`. Signatures also cover the `place` of a checkpoint: none fits another place."""

    name: str
    value: str = field(repr=False)
    place: str

    def signed(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record with its signature."""
        return {**record, SIGNATURE: self._signature(record)}

    def check(self, record: Mapping[str, Any]) -> None:
        """Unrecoverable: this key has not signed the record."""
        given = str(record.get(SIGNATURE, ""))
        content = {name: value for name, value in record.items() if name != SIGNATURE}
        # As bytes, because texts with other than ASCII characters are refused.
        if not hmac.compare_digest(given.encode(), self._signature(content).encode()):
            raise Unrecoverable(f"it is not signed with {self.name}")

    def _signature(self, content: Mapping[str, Any]) -> str:
        text = json.dumps([self.place, content], sort_keys=True)
        return hmac.new(self.value.encode(), text.encode(), DIGEST).hexdigest()


class Digested:
    """Pieces of a file on their way, and the digest of those that have passed."""

    def __init__(self, pieces: Iterable[BlobBytes]) -> None:
        self._pieces, self._digest = pieces, hashlib.new(DIGEST)

    def __iter__(self) -> Iterator[BlobBytes]:
        for piece in self._pieces:
            self._digest.update(piece)
            yield piece

    def digest(self) -> str:
        return self._digest.hexdigest()
