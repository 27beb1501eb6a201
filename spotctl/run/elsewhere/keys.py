"""Lets another computer in: it asks through the object store, and the runner admits its ssh key.

Only a computer that may write to the job's outputs can ask. The key that is asked for is public; nothing in the object
store is a secret.
"""

import hashlib
import re
from pathlib import Path

from agileml.runtime.blob_store import BlobStore

_FOLDER = "keys/"
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2} spotctl")
_OPTIONS = "restrict,port-forwarding,pty"


def ask(store: BlobStore, public_key: str) -> None:
    """Asks the runner to admit a key."""
    store.put(f"{_FOLDER}{hashlib.sha256(public_key.encode()).hexdigest()[:32]}", [public_key.encode()])


class Admission:
    """Admits keys that were asked for, each once."""

    def __init__(self, store: BlobStore, authorized: Path) -> None:
        self._store, self._authorized = store, authorized
        self._seen: set[str] = set()

    def turn(self) -> None:
        """Looks for new requests. Raises OSError or UnreadableBlob."""
        for name in self._store.list(_FOLDER):
            if name not in self._seen:
                key = b"".join(self._store.get(name)).decode(errors="replace").strip()
                if _KEY.fullmatch(key):
                    self._admit(key)
                self._seen.add(name)

    def _admit(self, key: str) -> None:
        line = f"{_OPTIONS} {key}\n"
        known = self._authorized.read_text() if self._authorized.exists() else ""
        if line not in known:
            with self._authorized.open("a") as file:
                file.write(line)
