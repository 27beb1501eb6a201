"""Locations in job files, and the stores that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.data import stores
from spotctl.agent.data.locations import place_of, shared_object, store_at
from spotctl.agent.data.stores import StoreRefused
from tests.servers.azurite import AzuriteUser


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(store_at(str(tmp_path)), FileBlobStore)


def test_a_shared_object_is_in_an_object_store(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="not in an object store"):
        shared_object(str(tmp_path / "claim"))


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(StoreRefused, match="ftp://x: not a path"):
        store_at("ftp://x")


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        (
            "SSL_CERT_FILE",
            "none.pem",
            "this computer knows no authorities of certificates: install the package "
            "ca-certificates",
        ),
        (
            "AZURE_STORAGE_BLOB_ENDPOINT",
            "no address",
            "Unable parse source url. Url: no address, Error: relative URL without a base$",
        ),
        (
            "AZURE_STORAGE_BLOB_ENDPOINT",
            "http://127.0.0.1:1",
            "no answer: HTTP error: .*: Connection refused$",
        ),
    ],
)
def test_a_store_out_of_reach_is_refused_in_one_line(
    variable: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv(variable, value)
    place = place_of("az://container@account/x", lambda _: AzuriteUser())
    assert place is not None
    with pytest.raises(StoreRefused, match=f"^az://container@account.*: {why}") as refused:
        place.bucket.list("")
    assert "\n" not in str(refused.value)
