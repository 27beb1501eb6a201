"""The key of an account."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import MissingCredentials
from spotctl.clouds.errors import checked_key
from spotctl.clouds.vast.cloud import ACCOUNT, api_key


def required_key(url: str) -> str:
    return checked_key("vast", url, api_key(), ACCOUNT.setup)


def test_a_key_is_needed_and_never_sent_in_the_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    with pytest.raises(MissingCredentials, match="set VAST_API_KEY"):
        required_key("https://console.vast.ai")
    (tmp_path / ".config" / "vastai").mkdir(parents=True)
    (tmp_path / ".config" / "vastai" / "vast_api_key").write_text("from the official client\n")
    assert required_key("https://console.vast.ai") == "from the official client"
    with pytest.raises(MissingCredentials, match="https address"):
        required_key("http://vast.example.org")
