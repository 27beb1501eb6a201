"""Tables of clouds in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.clouds.vast.cloud import VastSettings
from spotctl.home import config
from spotctl.home.errors import BadSettings


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
        ('[vast]\nlook_minutes = "often"', "a number for look_minutes"),
        ("[vast]\nleast_mbit_down = -3", "0 or more in least_mbit_down"),
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


def test_a_whole_number_is_a_number(tmp_path: Path) -> None:
    """As `look_minutes = 5` of the documentation."""
    (tmp_path / "config.toml").write_text("[vast]\nlook_minutes = 5\nleast_reliability = 1\n")
    read = config.load({}, tmp_path).table("vast", VastSettings)
    assert (read.look_minutes, read.least_reliability) == (5.0, 1.0)
