"""Blobs as files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from tests.agileml.runtime.blob_store_suite import BlobStoreSuite, Damage


class TestFiles(BlobStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FileBlobStore:
        return FileBlobStore(tmp_path / "blobs")

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        def change(name: str, how: Callable[[bytes], bytes]) -> None:
            path = tmp_path / "blobs" / name
            path.write_bytes(how(path.read_bytes()))

        return change

    def test_blobs_are_for_their_owner_alone_and_no_temporary_file_remains(
        self, store: FileBlobStore, tmp_path: Path
    ) -> None:
        store.put("checkpoints/x", [b"."])
        with pytest.raises(ZeroDivisionError):
            store.put("checkpoints/y", (bytes(1 // number) for number in (1, 0)))
        (path,) = (tmp_path / "blobs" / "checkpoints").iterdir()
        assert path.name == "x"
        assert path.stat().st_mode & 0o077 == 0

    def test_other_files_of_the_folder_are_not_blobs_of_a_prefix(
        self, store: FileBlobStore, tmp_path: Path
    ) -> None:
        store.put("checkpoints/x", [b"."])
        os.mkfifo(tmp_path / "blobs" / "checkpoints" / "pipe")
        (tmp_path / "blobs" / "controller.log").write_text("not a blob")
        assert store.list("checkpoints/") == ["checkpoints/x"]
