"""How long machines of each kind may take to boot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.clouds.boot import STATED, first_lease, stated_time
from spotctl.clouds.link import LeaseTimes


@pytest.mark.parametrize(
    ("market", "minutes"),
    [
        ("aws/us-east-1/us-east-1a/c5.large", 4),
        ("aws/us-east-1/us-east-1a/m4.large", 10),
        ("aws/us-east-1/us-east-1a/p5.48xlarge", 8),
        ("aws/us-east-1/us-east-1a/c5.metal", 20),
        ("gcp/us-central1/us-central1-b/n2-standard-4", 4),
        ("gcp/us-central1/us-central1-b/n1-standard-8+1-nvidia-tesla-t4", 8),
        ("gcp/us-central1/us-central1-b/c3-standard-192-metal", 20),
        ("azure/eastus/-/Standard_D4s_v5", 4),
        ("azure/eastus/-/Standard_ND96isr_H100_v5", 8),
        ("local/sim-east/a/c4.xlarge", None),
    ],
)
def test_each_kind_of_machine_has_its_time(market: str, minutes: int | None) -> None:
    assert stated_time(Market.parse(market)) == (None if minutes is None else minutes * MINUTE)


def test_the_page_on_evidence_has_each_time_with_its_source() -> None:
    page = (Path(__file__).parents[3] / "docs" / "proof.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (?:none|\[AWS\]\((.+?)\).*) \|$", page, re.MULTILINE)
    assert rows == [(kind, str(time // MINUTE), source) for kind, (time, source) in STATED.items()]


@pytest.mark.parametrize("type_", ["c5.large", "p5.48xlarge", "c5.metal"])
def test_the_first_lease_outlasts_a_boot_of_three_times_the_stated_time(type_: str) -> None:
    market = Market.parse(f"aws/us-east-1/us-east-1a/{type_}")
    assert first_lease(market, LeaseTimes()) >= max(
        3 * (stated_time(market) or 0), LeaseTimes().lease
    )
