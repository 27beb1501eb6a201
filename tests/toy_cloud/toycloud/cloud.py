"""The descriptor of the toy cloud."""

from __future__ import annotations

from pricing_data.known_clouds import CloudMarkets
from spotctl.home.cloud import Cloud, CloudSettings, CloudWords, JobKeys, text
from toycloud.settings import ToySettings

CLOUD = Cloud(
    name="toy",
    words=CloudWords("Toy Cloud", "Toy Works", "Toy Machines"),
    markets=CloudMarkets(region=r"shelf\d+-[a-z]+", zone="{region}-[ab]", repeats_prices=True),
    settings=CloudSettings(ToySettings, {"toy_folder": text}, identity="badge"),
    job=JobKeys("toy", "On the toy cloud: wood, tin, or auto.", "wood", "badge"),
    policies=("toy",),
)
