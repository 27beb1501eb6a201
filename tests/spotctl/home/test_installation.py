"""The id of an installation."""

from __future__ import annotations

from pathlib import Path

from spotctl.home.installation import installation_id


def test_an_installation_keeps_its_id(tmp_path: Path) -> None:
    made = installation_id(tmp_path / "home")
    assert installation_id(tmp_path / "home") == made
    assert installation_id(tmp_path / "other") != made
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["installation"]
