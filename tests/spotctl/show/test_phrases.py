from __future__ import annotations

import pytest

from pricing_data.market import Market
from pricing_data.units import bid_usd
from spotctl.show.phrases import bids_text, terms_text

LIMIT = (
    "a bid is only a maximum price: a low bid adds evictions when the price rises above it, and no "
    "bid prevents evictions for lack of capacity"
)
PAID = (
    "on Vast.ai you pay what you bid: a higher bid is outbid less often, and no bid keeps a "
    "machine from those who rent it on demand"
)
ALL = "; these are at the on-demand price"


@pytest.mark.parametrize(
    ("bids", "text"),
    [
        ([("local", 5, 9)], ""),
        ([("aws", None, 9)], ""),
        ([("aws", 5, 9)], f"on AWS {LIMIT}"),
        ([("azure", 9, 9)], f"on Azure {LIMIT}{ALL}"),
        (
            [("aws", 9, 9), ("azure", 9, 9), ("local", 1, 9)],
            f"on AWS and Azure {LIMIT}{ALL}",
        ),
        ([("vast", 5, 9)], PAID),
        ([("vast", 5, 9), ("aws", 5, 9)], f"{PAID}; on AWS {LIMIT}"),
        ([("gcp", 5, 9)], ""),
        ([("gcp", 5, 9), ("aws", 5, 9)], f"on AWS {LIMIT}"),
    ],
)
def test_what_a_bid_means_is_said_for_the_clouds_where_it_is_not_one(
    bids: list[tuple[str, int | None, int]], text: str
) -> None:
    assert bids_text(bids) == text


def test_bids_are_rounded_up_to_a_hundredth_of_a_cent() -> None:
    assert [bid_usd(bid) for bid in (52_551_321, 60_000_000, 60_000_001)] == [
        "$0.0526",
        "$0.0600",
        "$0.0601",
    ]
    assert (
        terms_text(Market.parse("local/sim-east/sim-east-a/c4.xlarge"), 52_551_321, 200)
        == ", bid $0.0526/h"
    )
