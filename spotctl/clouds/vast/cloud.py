"""The descriptor of Vast.ai, its settings, and the user's key. Imports nothing heavy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from pathlib import Path

from pricing_data.known_clouds import CloudMarkets
from spotctl.home.cloud import Cloud, CloudAccount, CloudSettings, CloudWords, JobKeys, text

CLOUD_NAME = "vast"
VERIFIED, UNVERIFIED = "verified", "unverified"
ADDRESS = "https://console.vast.ai"
_KEY_FILES = ("~/.config/vastai/vast_api_key", "~/.vast_api_key")
"""Where the official client keeps the key, and where it kept it before."""

_MIN_DISK_GB = 8
_MAX_LOOK_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class VastSettings:
    """`[vast]`. `image` is a container image with apt or Python 3.11; `disk_gib` is for jobs that
    name no size.

    Hosts that Vast.ai has not verified are left out unless `unverified`, and so are hosts whose
    reliability is below `least_reliability` or that download less than `least_mbit_down` in a
    second. A run compares its bids with those that hosts ask for
    every `look_minutes`; 0: it looks at no hosts, and its machines keep their bids.
    """

    image: str = "nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04"
    disk_gib: int = 32
    unverified: bool = False
    least_reliability: float = 0.95
    least_mbit_down: float = 128.0
    look_minutes: float = 0.0

    def __post_init__(self) -> None:
        if self.disk_gib < _MIN_DISK_GB:
            problem = (
                f"{_MIN_DISK_GB} or more in disk_gib, which Vast.ai asks for, not {self.disk_gib}"
            )
            raise ValueError(problem)
        if not 0 <= self.least_reliability <= 1:
            raise ValueError(f"from 0 to 1 in least_reliability, not {self.least_reliability}")
        if not 0 <= self.least_mbit_down < inf:
            raise ValueError(f"0 or more in least_mbit_down, not {self.least_mbit_down}")

        if not 0 <= self.look_minutes <= _MAX_LOOK_MINUTES:
            problem = f"from 0 to {_MAX_LOOK_MINUTES} in look_minutes, not {self.look_minutes}"
            raise ValueError(problem)


def address(setting: str | None) -> str:
    """The address of the API: the setting, or that of the official client's variable, or the public
    one.
    """
    return (setting or os.environ.get("VAST_URL") or ADDRESS).rstrip("/")


def api_key() -> str | None:
    """The user's key, from where the official client has it; None if there is none."""
    if key := os.environ.get("VAST_API_KEY", "").strip():
        return key
    files = (Path(name).expanduser() for name in _KEY_FILES)
    return next(
        (key for path in files if path.is_file() and (key := path.read_text().strip())), None
    )


ACCOUNT = CloudAccount(
    "make a key at https://cloud.vast.ai/manage-keys, and set VAST_API_KEY",
    "docs/vast.md#once",
    variables=("VAST_API_KEY",),
    files=(("", "~/.config/vastai", "vast_api_key"), ("", "~", ".vast_api_key")),
)

CLOUD = Cloud(
    name=CLOUD_NAME,
    words=CloudWords("Vast.ai", "Vast.ai", "Instances"),
    # Regions are countries: data may have to stay in one.
    markets=CloudMarkets(region=r"vast-[a-z]{2}", zone=f"{VERIFIED}|{UNVERIFIED}", rank=4),
    settings=CloudSettings(
        VastSettings,
        {"vast_url": text},
        variables={"vast_url": "VAST_URL"},
        image="image",
    ),
    account=ACCOUNT,
    job=JobKeys(
        "vast",
        "On Vast.ai: a container image, or auto.",
        "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime",
        # https://docs.vast.ai/documentation/instances/docker-environment, "Predefined Variables"
        # and "Port Variables".
        ports=("PUBLIC_IPADDR", "VAST_TCP_PORT_{}"),
    ),
)
