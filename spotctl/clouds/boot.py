"""The boot of a rented machine, as it is seen: its stages, and how long each kind of machine may
show nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing_data.catalog import XEN
from pricing_data.known_clouds import has_part, part_of
from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.home.cloud import cloud_of

if TYPE_CHECKING:
    from spotctl.clouds.link import LeaseTimes

STAGES = ("ordered", "running", "console", "ssh", "packages", "agent")
"""In this order: granted, running by its cloud's word, its console shows output, ssh answers, what
it needs is copied to it, its agent answers."""

_CONSOLE = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html"
_METAL = "https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-nitro-instances.html"

STATED: Mapping[str, tuple[int, str]] = {
    "most": (4 * MINUTE, ""),
    "with GPUs": (8 * MINUTE, ""),
    "with a late console": (10 * MINUTE, _CONSOLE),
    "bare metal": (20 * MINUTE, _METAL),
}
"""How long each kind of machine may show no sign, and a vendor's page that says something of it,
read on 2026-11-28. All are assumed, as no account has measured them: firmware that counts terabytes
of memory is quiet for minutes, EC2 posts the console of types before Nitro once, some time after
their start, and bare metal takes 20 minutes or more."""

LONGEST = 3.5
"""How many times its stated time a boot may take until files can be copied to the machine."""


def stated_time(market: Market) -> int | None:
    """How long a booting machine of a market may show no sign of life; None on a cloud that rents
    nothing.
    """
    if cloud_of(market.cloud).settings is None:
        return None

    kind = "with a late console"
    if has_part(market.cloud, "machine_types"):
        traits = part_of(market.cloud, "machine_types").traits_of(market.instance_type)
        if traits.hypervisor == "none":
            kind = "bare metal"
        elif traits.hypervisor != XEN:
            kind = "most" if traits.accelerator_gib is None else "with GPUs"

    return STATED[kind][0]


def first_lease(market: Market, times: LeaseTimes) -> int:
    """How long the lease of an order lasts: a machine ends itself when it boots after the end of
    its lease.
    """
    return max(times.lease, round((stated_time(market) or 0) * LONGEST))


@dataclass(frozen=True, slots=True)
class BootSign:
    """How far a machine's boot has come: to a stage. `sign` changes when it moves on there."""

    stage: str
    sign: str = ""
