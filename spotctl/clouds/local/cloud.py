"""The descriptor of the local market, which rents nothing: its prices are synthetic, or those of a
recorded market.
"""

from __future__ import annotations

from pricing_data.known_clouds import CloudMarkets
from spotctl.home.cloud import Cloud, CloudWords

CLOUD = Cloud(
    name="local",
    words=CloudWords("local market", "spotctl local market", "Replayed machines"),
    markets=CloudMarkets(region="", rank=6, is_synthetic=True),
)
