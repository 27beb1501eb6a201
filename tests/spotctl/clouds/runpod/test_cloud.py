"""RunPod's settings and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.clouds.runpod.cloud import RunPodSettings, api_key
from spotctl.home.errors import BadRequest


def test_the_key_is_read_from_where_the_official_clients_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    assert api_key() is None
    (tmp_path / ".runpod").mkdir()
    path = tmp_path / ".runpod" / "config.toml"
    for written in ('[default]\napi_key = "rpa_1"\n', 'apikey = "rpa_1"\n'):
        path.write_text(written)
        assert api_key() == "rpa_1"
    path.write_text("[default\n")
    with pytest.raises(BadRequest, match=r"config\.toml"):
        api_key()


def test_a_disk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more in disk_gib"):
        RunPodSettings(disk_gib=0)
