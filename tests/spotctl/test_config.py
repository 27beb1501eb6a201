from __future__ import annotations

from pathlib import Path

import pytest

from spotctl import config
from spotctl.errors import BadSettings


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('fetch_workers = 3\ngcp_project = "from-file"\n')
    environ = {"SPOTCTL_HOME": "/elsewhere", "SPOTCTL_GCP_PROJECT": "from-environment", "SPOTCTL_NODE_RANK": "3"}
    settings = config.load(environ, tmp_path)
    assert settings.home == tmp_path
    assert (settings.fetch_workers, settings.gcp_project, settings.azure_subscription) == (3, "from-environment", None)
    assert config.load(environ).home == Path("/elsewhere")


def test_the_default_home_is_the_data_folder_of_the_platform() -> None:
    assert config.load({}).home.name == "spotctl"
    assert config.load({}).price_store == config.load({}).home / "prices"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("fetch_workers = 0", r"config\.toml: fetch_workers is 0, but must be a whole number from 1 to 64"),
        ('azure_managed_identity = "perhaps"', r"azure_managed_identity is 'perhaps', but must be true or false"),
        ("gcp_project = 5", r"gcp_project is 5, but must be a string in quotes"),
        ("bid = 1", r"unknown setting bid; the settings are aws_spot_advisor_url"),
        ("= 1", r"not valid TOML"),
    ],
)
def test_an_invalid_setting_names_file_field_and_solution(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(BadSettings, match=message):
        config.load({}, tmp_path)


def test_an_invalid_setting_in_the_environment_is_named() -> None:
    with pytest.raises(BadSettings, match="environment: SPOTCTL_FETCH_WORKERS is 'many'"):
        config.load({"SPOTCTL_FETCH_WORKERS": "many"}, Path("/nowhere"))
