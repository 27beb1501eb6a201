"""Mailboxes that meet in a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agileml.runtime.mailbox import Mailbox
from agileml.runtime.rendezvous import FolderRendezvous, Rendezvous
from agileml.transport.link import TransportSettings

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield FolderRendezvous(Path(folder), SECRET)


@pytest.fixture
def mailbox(rendezvous: Rendezvous) -> Iterator[Callable[..., Mailbox]]:
    opened: list[Mailbox] = []

    def make(name: str, settings: TransportSettings | None = None) -> Mailbox:
        made = Mailbox(rendezvous, name, settings)
        made.open()
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()
