"""The offers of a Slurm cluster: the kinds of nodes of its partitions, as machine types with
prices.

A node without GPUs is one machine. One with GPUs is also offered in parts, with one GPU, two, four
and so on, and their share of its processors and its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pricing_data.catalog import InstanceType
from pricing_data.errors import CloudError
from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.slurm.calls import ClusterRow, configuration, table_of
from spotctl.clouds.slurm.cloud import ANY, CLOUD_NAME, SlurmSettings

COLUMNS = (
    *("PartitionName", "Available", "PreemptMode", "PriorityTier", "Time"),
    *("CPUs", "Memory", "Gres", "Features"),
)
_GPUS = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?:(\d+)", re.IGNORECASE)
_LIMIT = re.compile(r"(?:(\d+)-)?(\d+):(\d+):\d+|(\d+):\d+")
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """A machine type in a partition: a node of this kind, or the part of it that has these GPUs.

    `is_whole` nodes are ordered as such. `minutes` is the partition's time limit, None without one.
    """

    market: Market
    is_preemptible: bool
    cpus: int
    memory_mib: int
    gpu: str
    gpus: int
    features: tuple[str, ...]
    minutes: int | None
    price: int
    is_whole: bool = True

    @property
    def hardware(self) -> InstanceType:
        gib, model = self.memory_mib / 1024, self.gpu.upper() or "GPU"
        about = CLOUD_NAME, self.market.instance_type, self.cpus, gib
        return InstanceType(*about, model if self.gpus else None, self.gpus)


def offers(settings: SlurmSettings) -> tuple[NodeOffer, ...]:
    """The offers of the cluster, by two calls. Raises `CloudError`: no answer, an unknown
    partition, or none that is up."""
    known = configuration()
    rows = table_of("list of partitions", ("sinfo", "--exact"), COLUMNS)
    names = {row["PartitionName"] for row in rows}
    if unknown := [name for name in settings.partitions if name not in names]:
        cure = f"the cluster has {', '.join(sorted(names))}"
        raise CloudError(
            f"slurm: partition {unknown[0]!r} of the [slurm] settings is unknown", cure
        )
    return offers_of(rows, known, settings)


def offers_of(
    rows: Sequence[ClusterRow], known: ClusterRow, settings: SlurmSettings
) -> tuple[NodeOffer, ...]:
    """The offers in these rows of `sinfo`, on a cluster with this configuration."""
    highest = max((int(row["PriorityTier"]) for row in rows), default=0)
    preempts = known.get("PreemptType", "") == "preempt/partition_prio"
    distinct = dict[tuple[str, str], NodeOffer]()
    for row in rows:
        partition = row["PartitionName"]
        is_wanted = not settings.partitions or partition in settings.partitions
        if row["Available"] != "up" or not is_wanted:
            continue
        is_lower = preempts and int(row["PriorityTier"]) < highest
        is_preemptible = is_lower and row["PreemptMode"].upper() != "OFF"
        for offer in _parts(row, known.get("ClusterName", ""), settings):
            whole = replace(offer, is_preemptible=is_preemptible)
            distinct.setdefault((partition, whole.market.instance_type), whole)
    return tuple(distinct.values())


def _parts(row: ClusterRow, cluster: str, settings: SlurmSettings) -> Iterator[NodeOffer]:
    """The machine types of a kind of nodes. A size may end in `+`, where nodes differ."""
    cpus, memory = (int(row[name].rstrip("+")) for name in ("CPUs", "Memory"))
    gpu = _GPUS.search(row["Gres"])
    model, most = ((gpu[1] or "").lower(), int(gpu[2])) if gpu else ("", 0)
    has_features = row["Features"] not in ("", "(null)", "N/A")
    features = tuple(row["Features"].split(",")) if has_features else ()
    prices = settings.usd_per_hour
    usd = prices.get(row["PartitionName"], prices.get(ANY, 1.0))
    counts = [count for count in (1, 2, 4, 8, 16) if count < most]
    for count in (most, *counts):
        share = count / most if most else 1.0
        cores, mib = max(1, int(cpus * share)), max(1, int(memory * share))
        words = [f"{cores}c", f"{max(1, round(mib / 1024))}g"]
        words += [f"{count}x{model or 'gpu'}"] if count else []
        name = _UNFIT.sub("_", "-".join(words) + "".join(f"+{name}" for name in features))
        market = Market(CLOUD_NAME, f"slurm-{cluster}", row["PartitionName"], name)
        size = cores, mib, model, count, features, _minutes(row["Time"])
        yield NodeOffer(
            market, False, *size, max(1, round(usd * share * NANOS_PER_DOLLAR)), count == most
        )


def _minutes(limit: str) -> int | None:
    """A time limit in minutes; None for `infinite`.

    >>> [_minutes(text) for text in ("infinite", "2-00:00:00", "1:30:00", "30:00")]
    [None, 2880, 90, 30]
    """
    if (match := _LIMIT.fullmatch(limit)) is None:
        return None
    days, hours, minutes, short = match.groups()
    return int(short) if short else (int(days or 0) * 24 + int(hours)) * 60 + int(minutes)
