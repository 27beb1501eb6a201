"""The boot of a rented machine, as it is seen: its stages, and how long each kind of machine may show nothing new."""

from __future__ import annotations

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
"""In this order: granted, running by its cloud's word, its console shows output, ssh answers, what it needs is copied
to it, its agent answers."""

_USUAL, _WITH_GPUS, _LATE_CONSOLE, _BARE_METAL = 4 * MINUTE, 8 * MINUTE, 10 * MINUTE, 20 * MINUTE
"""The longest time without a sign. Assumed, as no account has measured it: firmware that counts terabytes of memory is
quiet for minutes, bare metal for a quarter of an hour, and EC2 posts the console of types before Nitro minutes late."""

LONGEST = 3.5
"""How many times its stated time a boot may take until files can be copied to the machine."""


def stated_time(market: Market) -> int | None:
    """How long a booting machine of a market may show no sign of life; None on a cloud that rents nothing."""
    if cloud_of(market.cloud).settings is None:
        return None
    if not has_part(market.cloud, "machine_types"):
        return _LATE_CONSOLE
    traits = part_of(market.cloud, "machine_types").traits_of(market.instance_type)
    if traits.hypervisor == "none":
        return _BARE_METAL
    if traits.hypervisor == XEN:
        return _LATE_CONSOLE
    return _USUAL if traits.accelerator_gib is None else _WITH_GPUS


def first_lease(market: Market, times: LeaseTimes) -> int:
    """How long the lease of an order lasts: a machine ends itself when it boots after the end of its lease."""
    return max(times.lease, round((stated_time(market) or 0) * LONGEST))


@dataclass(frozen=True, slots=True)
class BootSign:
    """How far a machine's boot has come: to a stage. `sign` changes when it moves on there."""

    stage: str
    sign: str = ""
