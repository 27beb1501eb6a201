"""Lines that commands add to `config.toml` and take away."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from spotctl.home.config_file import added, taken_away
from spotctl.home.errors import BadSettings

VALUES = ("203.0.113.7/32",)
WRITTEN = 'monthly_budget = 5\n\n[aws] # mine\nregions = ["us-east-1"]\n\n[gcp]\nnetwork = "own"\n'


@pytest.mark.parametrize("text", ["", WRITTEN, "monthly_budget = 5", "[aws]"])
def test_a_line_is_added_to_its_table_and_taken_away_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "home" / "config.toml"
    if text:
        path.parent.mkdir()
        path.write_text(text)
    added(path, "aws", "ssh_from", VALUES)
    content = tomllib.loads(path.read_text())
    assert content["aws"].pop("ssh_from") == list(VALUES)
    before = tomllib.loads(text)
    assert content == {**before, "aws": before.get("aws", {})}

    taken_away(path, "aws", "ssh_from", VALUES)
    assert tomllib.loads(path.read_text()) == {**before, "aws": before.get("aws", {})}


def test_a_key_that_is_there_is_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[aws]\nssh_from = []\n")
    with pytest.raises(BadSettings, match="cannot be added"):
        added(path, "aws", "ssh_from", VALUES)
    assert path.read_text() == "[aws]\nssh_from = []\n"


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_only_the_line_of_the_table_is_taken_away(tmp_path: Path, cloud: str) -> None:
    path = tmp_path / "config.toml"
    for each in ("aws", "gcp"):
        added(path, each, "ssh_from", VALUES)
        added(path, each, "identity", each)
    taken_away(path, cloud, "ssh_from", VALUES)
    taken_away(path, cloud, "identity", "another")
    content = tomllib.loads(path.read_text())
    assert {each for each in content if "ssh_from" not in content[each]} == {cloud}
    assert all(content[each]["identity"] == each for each in content)
    path.unlink()
    taken_away(path, cloud, "ssh_from", VALUES)
    assert not path.exists()


def test_a_line_that_a_person_has_changed_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[aws]\nssh_from = ["198.51.100.0/24"]\n')
    taken_away(path, "aws", "ssh_from", VALUES)
    assert "198.51.100.0/24" in path.read_text()
