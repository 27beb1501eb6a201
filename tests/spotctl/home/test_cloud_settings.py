"""Tables of clouds in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.home import config
from spotctl.home.errors import BadSettings


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('aws = "a"', "must be lines such as"),
        ("aws = 5", "must be a table of settings"),
        ('[aws]\nsubnet = "subnet-1"', "settings among image, .* subnet is not one of them"),
        ('[aws]\nsubnets = "subnet-1"', "a list of strings for subnets"),
        ('[aws]\npublic_ip = "no"', "true or false for public_ip"),
        ("[aws]\nimage = 7", "a string for image"),
        ("[aws]\ntags = {team = 7}", "a table of strings for tags"),
        ('[aws]\nssh_from = ["here"]', "not 'here'"),
        ('[aws]\nssh_from = ["::/0"]', "the whole internet"),
    ],
)
def test_an_invalid_table_of_a_cloud_names_the_setting(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(BadSettings, match=message):
        config.load({}, tmp_path)
