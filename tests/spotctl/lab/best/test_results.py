"""Ranked offers as tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.best.conftest import _HEADER

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    "words",
    [
        ("prices", "best", "--gpu", "A100:8"),
        ("lab", "prices", "ls", "--stats"),
        ("prices", "show", "gcp/us-central1/-/a2-highgpu-8g"),
    ],
)
def test_80_columns_hold_every_figure_whole(words: tuple[str, ...]) -> None:
    shown = spotctl(*words, COLUMNS="80").out
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    if words[0] == "best":
        assert [float(figure) for figure in re.findall(r" (\d\.\d{4}) ", shown)][:3]


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--gpu", "A100:8", "--memory", "4000.."), "--memory 4000.."),
        (("--gpu", "A100:9..", "--memory", "4000.."), "--gpu A100:9.."),
        (("--cloud", "azure", "--gpu", "H200"), "--gpu H200"),
        (("--cloud", "azure", "--region", "westus", "--vcpus", "8"), "--region westus"),
        (("--vcpus", "3", "--gpu", "A100"), "--vcpus 3"),
        (("--type", "p4d.*", "--memory", "..8"), "--memory ..8"),
        (("azure/eastus/*/E*", "--memory", "..8"), "'azure/eastus/*/E*'"),
        (("--os", "suse"), "--os suse"),
    ],
)
def test_where_nothing_fits_the_last_filter_is_named(words: tuple[str, ...], option: str) -> None:
    answer = spotctl("prices", "best", *words, "--json")
    assert (answer.code, answer.json["offers"]) == (3, [])
    assert answer.json["removed_by"]["option"] == option
    if words[:2] == ("--cloud", "azure"):
        assert answer.json["removed_by"]["before"] == 1
        assert (
            f"no offer fits: {option} leaves none (1 market before it)"
            in spotctl("prices", "best", *words).err
        )


@pytest.mark.usefixtures("prices")
def test_only_clouds_without_current_prices_are_named(tmp_path: Path) -> None:
    fresh = spotctl("prices", "best", "--gpu", "A100:8", "--json").json
    assert [cloud["state"] for cloud in fresh["clouds"]] == [*["fresh"] * 3, *["missing"] * 3]
    known = ("--cloud", "aws", "--cloud", "gcp", "--cloud", "azure")
    assert spotctl("prices", "best", "--gpu", "A100:8", "--json", *known).json["fetch"] is None
    assert "fetch them" not in spotctl("prices", "best", "--gpu", "A100:8", *known).err
    assert "fetch them" not in spotctl("prices", "best", "--gpu", "H200", *known).err, (
        "fresh, and none sells it"
    )
    seen = datetime.now(UTC) - timedelta(days=8)
    (tmp_path / "old.csv").write_text(
        f"{_HEADER}\n{seen.isoformat(timespec='seconds')},aws,us-east-1,us-east-1a,c6i.large,Linux/UNIX,0.03"
    )
    home = {"SPOTCTL_HOME": str(tmp_path / "other")}
    assert spotctl("prices", "import", tmp_path / "old.csv", **home).code == 0
    both = spotctl(
        "prices", "best", "--cloud", "aws", "--cloud", "azure", "--region", "us-east-1", **home
    )
    assert both.err.startswith(
        "prices of aws are 8 d old; fetch them: spotctl prices fetch --cloud aws --region "
        "us-east-1\n"
    )
    every = spotctl("prices", "best", "--json", **home).json
    assert {cloud["cloud"]: cloud["state"] for cloud in every["clouds"]} == {
        "aws": "old",
        "gcp": "missing",
        "azure": "missing",
        "slurm": "missing",
        "vast": "missing",
        "runpod": "missing",
    }
    assert every["fetch"] == "spotctl prices fetch"
    listed = spotctl("lab", "prices", "ls", "--json", **home).json
    assert [(cloud["cloud"], cloud["state"]) for cloud in listed["clouds"]] == [("aws", "old")]
