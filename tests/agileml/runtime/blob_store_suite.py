"""The contract of every blob store: a store's own tests subclass `BlobStoreSuite` and define
`store` and `damage`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from agileml.errors import BadArgument
from agileml.runtime.blob_store import PIECE_BYTES, BlobStore, UnreadableBlob

Damage = Callable[[str, Callable[[bytes], bytes]], None]
"""Changes what is stored of a blob behind the store's back."""


def content(store: BlobStore, name: str) -> bytes:
    return b"".join(store.get(name))


class BlobStoreSuite:
    @pytest.fixture
    def store(self) -> BlobStore:
        raise NotImplementedError

    @pytest.fixture
    def damage(self) -> Damage:
        raise NotImplementedError

    def test_a_blob_comes_back_as_it_was_written(self, store: BlobStore) -> None:
        store.put("a/b-1.bin", [b"one", bytearray(b"two"), memoryview(b"three"), b""])
        assert content(store, "a/b-1.bin") == b"onetwothree"
        store.put("empty", [])
        assert content(store, "empty") == b""

    def test_a_large_blob_is_streamed_in_both_directions(self, store: BlobStore) -> None:
        store.put("large", (bytes([number]) * PIECE_BYTES for number in range(5)))
        sizes = [len(piece) for piece in store.get("large")]
        assert sum(sizes) == 5 * PIECE_BYTES
        assert max(sizes) <= PIECE_BYTES

    def test_a_second_put_replaces_the_first(self, store: BlobStore) -> None:
        store.put("x", [b"first, and longer"])
        store.put("x", [b"second"])
        assert content(store, "x") == b"second"

    def test_a_writer_that_fails_leaves_the_earlier_blob_and_nothing_else(
        self, store: BlobStore
    ) -> None:
        store.put("x", [b"kept"])

        def pieces() -> Iterator[bytes]:
            yield b"half"
            raise OSError("no space left")

        for name in ("x", "new"):
            with pytest.raises(OSError, match="no space left"):
                store.put(name, pieces())
        assert content(store, "x") == b"kept"
        assert store.list() == ["x"]

    def test_a_blob_is_listed_only_when_it_is_complete(self, store: BlobStore) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"half"
            assert store.list() == []
            with pytest.raises(UnreadableBlob):
                content(store, "x")

        store.put("x", pieces())
        assert store.list() == ["x"]

    def test_list_selects_by_prefix_and_sorts(self, store: BlobStore) -> None:
        for name in ("b/2", "a", "b/10", "b/deep/1", "bb/1"):
            store.put(name, [b"."])
        assert store.list() == ["a", "b/10", "b/2", "b/deep/1", "bb/1"]
        assert store.list("b/") == ["b/10", "b/2", "b/deep/1"]
        assert store.list("b/1") == ["b/10"]
        assert store.list("nothing/") == []

    def test_a_missing_blob_is_an_error_to_read_but_not_to_delete(self, store: BlobStore) -> None:
        with pytest.raises(UnreadableBlob, match="missing"):
            content(store, "missing")
        store.delete("missing")

    def test_a_deleted_blob_is_gone(self, store: BlobStore) -> None:
        store.put("x", [b"."])
        store.delete("x")
        assert store.list() == []
        with pytest.raises(UnreadableBlob):
            content(store, "x")

    @pytest.mark.parametrize("place", [0, 7, 40, 70, -1])
    def test_a_changed_bit_is_noticed(self, store: BlobStore, damage: Damage, place: int) -> None:
        store.put("x", [b"0123456789" * 10])

        def flip(stored: bytes) -> bytes:
            changed = bytearray(stored)
            changed[place] ^= 1
            return bytes(changed)

        damage("x", flip)
        with pytest.raises(UnreadableBlob, match="x is damaged"):
            content(store, "x")

    @pytest.mark.parametrize("kept", [0, 10, 32, 50, -1])
    def test_a_truncated_blob_is_noticed(self, store: BlobStore, damage: Damage, kept: int) -> None:
        store.put("x", [b"0123456789" * 10])
        damage("x", lambda stored: stored[:kept])
        with pytest.raises(UnreadableBlob, match="x is damaged"):
            content(store, "x")

    @pytest.mark.parametrize(
        "name", ["", "/x", "../x", "a//b", "a/../b", ".x", "a/.x", "a b", "a/", "ä", "x\n"]
    )
    def test_names_that_could_leave_the_store_are_refused(
        self, store: BlobStore, name: str
    ) -> None:
        for use in (
            lambda: store.put(name, [b"."]),
            lambda: content(store, name),
            lambda: store.delete(name),
        ):
            with pytest.raises(BadArgument, match="blob name"):
                use()

    def test_concurrent_writers_leave_one_whole_blob(self, store: BlobStore) -> None:
        def write(letter: bytes) -> None:
            for _ in range(5):
                store.put("x", [letter * 1000] * 20)

        writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        found = content(store, "x")
        assert found == found[:1] * 20_000
        assert store.list() == ["x"]
