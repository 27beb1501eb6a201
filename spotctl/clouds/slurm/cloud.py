"""The descriptor of Slurm, and its settings. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

from pricing_data.known_clouds import CloudMarkets
from spotctl.home.cloud import Cloud, CloudAccount, CloudSettings, CloudWords

CLOUD_NAME = "slurm"
ANY = "*"
"""Stands for the partitions that `usd_per_hour` does not name."""

_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """`[slurm]`. Only these `partitions` are used, or all that are up; jobs have this `account` and
    `qos`, and `hours` as their time limit, unless their partition allows less.

    `usd_per_hour` is what an hour of a whole node of a partition is worth. `folder` is one that
    this computer and the nodes share, below the home unless it is set. A job that does not start
    within `wait_seconds` is withdrawn, and counts as no capacity.
    """

    folder: str | None = None
    account: str | None = None
    qos: str | None = None
    partitions: tuple[str, ...] = ()
    usd_per_hour: Mapping[str, float] = field(default_factory=partial(dict, {ANY: 1.0}))
    hours: float = 12.0
    wait_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name, usd in self.usd_per_hour.items():
            if not 0 < usd < inf:
                raise ValueError(f"prices above 0 in usd_per_hour; that of {name} is {usd}")
        if not 0 < self.hours < inf:
            raise ValueError(f"more than 0 in hours, not {self.hours}")
        if not 0 < self.wait_seconds <= _LONGEST_WAIT:
            within = f"from 0 to {_LONGEST_WAIT:.0f} in wait_seconds"
            raise ValueError(f"{within}, not {self.wait_seconds}")


ACCOUNT = CloudAccount(
    "run spotctl on a login node of the cluster, where sinfo answers",
    "docs/slurm.md",
    variables=("SLURM_CONF",),
    files=(("", "/etc/slurm", "slurm.conf"),),
)

CLOUD = Cloud(
    name=CLOUD_NAME,
    words=CloudWords("Slurm", "Slurm", "Jobs", "a job in a preemptible partition"),
    markets=CloudMarkets(
        region=r"slurm-[a-z0-9._-]+", zone=r"[A-Za-z0-9][A-Za-z0-9._+-]*", rank=4, takes_bids=False
    ),
    settings=CloudSettings(SlurmSettings),
    account=ACCOUNT,
    shares_folders=True,
)
