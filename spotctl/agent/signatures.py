"""Signs checkpoints with a key that does not lie where they lie: a checkpoint may be a program, as PyTorch's are."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from agileml.errors import Unrecoverable
from agileml.runtime.blob_store import BlobBytes

SIGNATURE = "signature"
"""The entry of a checkpoint's record with its signature."""

_PIECE_BYTES = 1 << 20


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
        if not hmac.compare_digest(given, self._signature(content)):
            raise Unrecoverable(f"it is not signed with {self.name}")

    def _signature(self, content: Mapping[str, Any]) -> str:
        text = json.dumps([self.place, content], sort_keys=True)
        return hmac.new(self.value.encode(), text.encode(), sha256).hexdigest()


class Digested:
    """Pieces of a file on their way, and the digest of those that have passed."""

    def __init__(self, pieces: Iterable[BlobBytes]) -> None:
        self._pieces, self._digest = pieces, sha256()

    def __iter__(self) -> Iterator[BlobBytes]:
        for piece in self._pieces:
            self._digest.update(piece)
            yield piece

    def digest(self) -> str:
        return self._digest.hexdigest()


def digest_of(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        digest = Digested(iter(lambda: file.read(_PIECE_BYTES), b""))
        for _ in digest:
            pass
    return digest.digest()
