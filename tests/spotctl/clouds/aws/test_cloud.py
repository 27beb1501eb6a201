"""The table of AWS in the settings."""

from __future__ import annotations

from pathlib import Path

from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.home import config


def test_a_clouds_table_comes_from_the_file_or_as_lines_from_the_environment(
    tmp_path: Path,
) -> None:
    lines = 'ssh_from = ["203.0.113.7/32"]\npublic_ip = false\ntags = {team = "x"}\n'
    (tmp_path / "config.toml").write_text(f"[aws]\n{lines}")
    said = config.load({}, tmp_path).table("aws", AwsMachineSettings)
    assert (said.ssh_from, said.public_ip, said.tags) == (("203.0.113.7/32",), False, {"team": "x"})
    assert (
        config.load({"SPOTCTL_AWS": lines}, Path("/nowhere")).table("aws", AwsMachineSettings)
        == said
    )
