"""The end of a pod by itself."""

from __future__ import annotations

import pytest

from spotctl.clouds.runpod import self_deletion


def test_it_ends_itself_by_one_api_or_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_POD_ID", "abc")
    monkeypatch.setenv("RUNPOD_API_KEY", "hush")
    monkeypatch.delenv("RUNPOD_API_BASE_URL", raising=False)
    urls = {self_deletion.deletion(None)[0] for _ in range(2)}
    assert urls == {"https://api.runpod.io/v2/pods/abc", "https://rest.runpod.io/v1/pods/abc"}
    monkeypatch.setenv("RUNPOD_API_BASE_URL", "http://127.0.0.1:1/")
    assert self_deletion.deletion(None) == ("http://127.0.0.1:1/v2/pods/abc", "hush")
