"""Another computer asks through the object store to be let in."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.run.elsewhere.keys import Admission, ask

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGx0 spotctl"


def test_a_key_is_admitted_once(tmp_path: Path) -> None:
    store, authorized = FileBlobStore(tmp_path / "store"), tmp_path / "authorized_keys"
    authorized.write_text("restrict,port-forwarding,pty ssh-ed25519 AAAAfirst spotctl\n")
    Admission(store, authorized).turn()
    ask(store, KEY)
    admission = Admission(store, authorized)
    admission.turn()
    ask(store, KEY)
    admission.turn()
    Admission(store, authorized).turn()
    assert authorized.read_text().splitlines() == [
        "restrict,port-forwarding,pty ssh-ed25519 AAAAfirst spotctl",
        f"restrict,port-forwarding,pty {KEY}",
    ]


@pytest.mark.parametrize(
    "asked", ["", f'command="rm" {KEY}', f"{KEY}\nssh-ed25519 AAAA spotctl", "ssh-rsa AAAA spotctl", "\u00e4"]
)
def test_anything_but_a_key_is_ignored(asked: str, tmp_path: Path) -> None:
    store, authorized = FileBlobStore(tmp_path / "store"), tmp_path / "authorized_keys"
    ask(store, asked)
    Admission(store, authorized).turn()
    assert not authorized.exists()
