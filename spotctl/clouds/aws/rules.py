"""The rules of a run's security group: machines reach each other, and ssh comes from the settings' ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spotctl.clouds.aws.rows import Row

SSH = 22
ADMITTED = "spotctl admit"
"""The description of a rule for an address that the user admitted during the run; such rules replace the settings'."""
IpPermission = dict[str, Any]


def wanted(group: str, ssh_from: Iterable[str]) -> list[IpPermission]:
    """The rules of a group, one source each."""
    return [_from_group(group), *(_ssh(source) for source in ssh_from)]


def admitted(present: Sequence[Row]) -> list[str]:
    """The sources of ssh that the user admitted during the run."""
    ranges = (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6"))
    entries = ((entry, source) for row in present for kind, source in ranges for entry in row.get(kind, ()))
    return [entry[source] for entry, source in entries if entry.get("Description") == ADMITTED]


def admitting(rule: IpPermission) -> IpPermission:
    """A rule for ssh, with the description of an admitted address."""
    ranges = ("IpRanges", "Ipv6Ranges")
    return {
        name: [{**entry, "Description": ADMITTED} for entry in value] if name in ranges else value
        for name, value in rule.items()
    }


def missing(present: Sequence[Row], rules: Sequence[IpPermission]) -> list[IpPermission]:
    """The rules that a group lacks."""
    have = _single(present)
    return [rule for rule in rules if rule not in have]


def superfluous(present: Sequence[Row], rules: Sequence[IpPermission]) -> list[IpPermission]:
    """Rules of the group that should not be there, such as one for yesterday's address."""
    return [rule for rule in _single(present) if rule not in rules]


def _from_group(group: str) -> IpPermission:
    return {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}


def _ssh(source: str) -> IpPermission:
    ranges = {"Ipv6Ranges": [{"CidrIpv6": source}]} if ":" in source else {"IpRanges": [{"CidrIp": source}]}
    return {"IpProtocol": "tcp", "FromPort": SSH, "ToPort": SSH, **ranges}


def _single(present: Sequence[Row]) -> list[IpPermission]:
    """The rules that EC2 lists, one source each and without descriptions."""
    singles = []
    for row in present:
        ports = {name: row[name] for name in ("FromPort", "ToPort") if row.get(name, -1) != -1}
        base = {"IpProtocol": row["IpProtocol"], **ports}
        for kind, source in (
            ("UserIdGroupPairs", "GroupId"),
            ("IpRanges", "CidrIp"),
            ("Ipv6Ranges", "CidrIpv6"),
            ("PrefixListIds", "PrefixListId"),
        ):
            singles += [{**base, kind: [{source: entry[source]}]} for entry in row.get(kind, ())]
    return singles
