"""Where partitions live and who works, by stage. Pure: from who is there and what is, to what should be.

Stage 1 serves from reliable nodes; stage 2 from half of the transient ones, with copies on reliable nodes; stage 3 is
stage 2 without work on reliable nodes (section 4.2.2 of the dissertation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agileml.policies.report import Footprint
from agileml.protocol.messages import Table


def placed(footprint: Footprint, stage: int, now: Table, previous: Mapping[int, Sequence[str]]) -> Table:
    """What the table should be, with as few changes as balance allows.

    `previous` names who worked on a shard before, the latest last: they have its data.
    """
    owners = _owners(footprint, stage, now)
    backups = _backups(footprint, stage, owners, now)
    hosts = footprint.transient if stage == 3 and footprint.transient else footprint.reliable + footprint.transient
    workers = spread(now.workers, hosts, {shard: list(reversed(names)) for shard, names in previous.items()})
    return Table(now.version, owners, backups, workers)


def actives(footprint: Footprint, partitions: int) -> tuple[str, ...]:
    """Transient nodes that serve in stages 2 and 3: the longest running half, and no more than there are partitions."""
    return footprint.transient[: max(1, min(partitions, -(-len(footprint.transient) // 2)))]


def _owners(footprint: Footprint, stage: int, now: Table) -> tuple[str, ...]:
    if stage == 1 or not footprint.transient:
        # The copy is already there.
        return spread(now.owners, footprint.reliable, {p: [b] for p, b in enumerate(now.backups) if b})
    return spread(now.owners, actives(footprint, len(now.owners)), {})


def _backups(footprint: Footprint, stage: int, owners: Sequence[str], now: Table) -> tuple[str, ...]:
    if stage == 1 or not footprint.reliable:
        return ("",) * len(owners)
    # Who served it from reliable ground keeps what it has.
    return spread(now.backups, footprint.reliable, {p: [owner] for p, owner in enumerate(now.owners)})


def spread(current: Sequence[str], hosts: Sequence[str], preferred: Mapping[int, Sequence[str]]) -> tuple[str, ...]:
    """Items over hosts, at most ceil(items / hosts) each: where they are, else where preferred, else where least is."""
    if not hosts:
        return ("",) * len(current)
    most = -(-len(current) // len(hosts))
    load = dict.fromkeys(hosts, 0)
    places = [""] * len(current)
    for item, host in enumerate(current):
        if load.get(host, most) < most:
            places[item] = host
            load[host] += 1
    for item, place in enumerate(places):
        if not place:
            wished = (host for host in preferred.get(item, ()) if load.get(host, most) < most)
            places[item] = next(wished, min(hosts, key=load.__getitem__))
            load[places[item]] += 1
    return tuple(places)
