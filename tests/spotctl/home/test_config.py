from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.queue.values import QueueTerms, QueueUser
from spotctl.home import config
from spotctl.home.errors import BadSettings


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('fetch_workers = 3\ngcp_project = "from-file"\n')
    environ = {
        "SPOTCTL_HOME": "/elsewhere",
        "SPOTCTL_GCP_PROJECT": "from-environment",
        "SPOTCTL_NODE_RANK": "3",
    }
    settings = config.load(environ, tmp_path)
    assert settings.home == tmp_path
    assert (
        settings.fetch_workers,
        settings.text("gcp_project"),
        settings.text("azure_subscription"),
    ) == (
        3,
        "from-environment",
        None,
    )
    assert config.load(environ).home == Path("/elsewhere")


def test_the_default_home_is_the_data_folder_of_the_platform() -> None:
    assert config.load({}).home.name == "spotctl"
    assert config.load({}).price_store == config.load({}).home / "prices"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "fetch_workers = 0",
            r"config\.toml: fetch_workers is 0, but must be a whole number from 1 to 64",
        ),
        (
            'azure_managed_identity = "perhaps"',
            r"azure_managed_identity is 'perhaps', but must be true or false",
        ),
        ("gcp_project = 5", r"gcp_project is 5, but must be a string in quotes"),
        ("bid = 1", r"unknown setting bid; the settings are address_url, aws, aws_price_list_url"),
        ("= 1", r"not valid TOML"),
    ],
)
def test_an_invalid_setting_names_file_field_and_solution(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(BadSettings, match=message):
        config.load({}, tmp_path)


def test_an_invalid_setting_in_the_environment_is_named() -> None:
    with pytest.raises(BadSettings, match="environment: SPOTCTL_FETCH_WORKERS is 'many'"):
        config.load({"SPOTCTL_FETCH_WORKERS": "many"}, Path("/nowhere"))


def test_quotas_come_from_the_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[quotas]\n"aws/us-east-1/p3" = 64\n"gcp/*" = "8 machines"\naws = "4 gpus"\n'
    )
    first, second, third = config.load({}, tmp_path).quotas
    assert (str(first), str(second), str(third)) == (
        "aws/us-east-1/p3=64 vCPUs",
        "gcp/*=8 machines",
        "aws=4 GPUs",
    )
    assert first.covers("aws", "us-east-1", "p3")
    assert not first.covers("aws", "us-east-1", "p2")
    assert second.covers("gcp", "us-central1", "a2")
    assert not second.covers("aws", "us-east-1", "p3")
    said = {"SPOTCTL_QUOTAS": ", ".join(map(str, (first, second, third)))}
    assert config.load(said, Path("/nowhere")).quotas == (first, second, third)


def test_how_jobs_share_quotas_comes_from_the_file_or_the_environment(tmp_path: Path) -> None:
    assert config.load({}, tmp_path).queue_terms() == QueueTerms()
    (tmp_path / "config.toml").write_text(
        'queue_policy = "hierarchical"\nqueue_round_minutes = 10\n[queue_users]\nada = 2\nbob = "1.5 fifo"\n'
    )
    users = {"ada": QueueUser(2.0), "bob": QueueUser(1.5, "fifo")}
    assert config.load({}, tmp_path).queue_terms() == QueueTerms("hierarchical", users, 600.0)
    assert config.load({}, tmp_path).queue_terms("makespan").policy == "makespan"
    said = {"SPOTCTL_QUEUE_USERS": "ada=2, bob=1.5 fifo", "SPOTCTL_QUEUE_POLICY": "fifo"}
    assert config.load(said, Path("/nowhere")).queue_terms() == QueueTerms("fifo", users)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'queue_policy = "fair"',
            "queue_policy is 'fair', but must be one of mean-completion, max-min-fairness",
        ),
        ("queue_round_minutes = 0", "queue_round_minutes is 0, but must be minutes from 1 to 1440"),
        (
            "queue_users = 5",
            "queue_users is 5, but must be a table of users and weights up to 1000, such as ada = "
            "2",
        ),
        ("[queue_users]\nada = 0", "but must be a table of users and weights"),
        ('[queue_users]\nada = "2 lifo"', "but must be a table of users and weights"),
        ("quotas = 5", "but must be a table of amounts by cloud, region and family"),
        (
            '[quotas]\n"aws/us-east-1/p3" = -1',
            "must be whole numbers of vCPUs, .* aws/us-east-1/p3 is -1",
        ),
        ('[quotas]\n"aws/us-east-1/p3" = true', "aws/us-east-1/p3 is True"),
        ('[quotas]\n"aws/us-east-1/p3" = 1.5', "aws/us-east-1/p3 is 1.5"),
        ('[quotas]\n"aws/us-east-1/p3" = "4 cores"', "aws/us-east-1/p3 is '4 cores'"),
        (
            '[quotas]\n"aws/us-east-1/p3/x" = 4',
            "CLOUD/REGION/FAMILY .* not by 'aws/us-east-1/p3/x'",
        ),
        ('[quotas]\n"*" = 4', "not by '\\*'"),
    ],
)
def test_an_invalid_quota_says_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(BadSettings, match=message):
        config.load({}, tmp_path)


def test_budgets_of_tags_come_from_the_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[monthly_budgets]\n"user=ada" = 100\n"team=search" = "400 USD"\n'
    )
    assert config.load({}, tmp_path).monthly_budgets == {"user=ada": 100.0, "team=search": 400.0}
    assert config.load({"SPOTCTL_MONTHLY_BUDGETS": "user=bob=5"}, tmp_path).monthly_budgets == {
        "user=bob": 5.0
    }
    for content in ("monthly_budgets = 5", "[monthly_budgets]\nada = 100"):
        (tmp_path / "config.toml").write_text(content)
        with pytest.raises(BadSettings, match="must be a table of tags and dollars"):
            config.load({}, tmp_path)
    (tmp_path / "config.toml").write_text('[monthly_budgets]\n"user=ada" = -1')
    with pytest.raises(BadSettings, match="must be an amount in dollars"):
        config.load({}, tmp_path)


def test_tags_of_all_jobs_come_from_the_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[tags]\nteam = "search"\nuser = "ada"\n')
    assert config.load({}, tmp_path).tags == {"team": "search", "user": "ada"}
    assert config.load({"SPOTCTL_TAGS": "user=bob"}, tmp_path).tags == {"user": "bob"}
    with pytest.raises(BadSettings, match="TAGS is 'Bob', but must be a table of names and values"):
        config.load({"SPOTCTL_TAGS": "Bob"}, tmp_path)
