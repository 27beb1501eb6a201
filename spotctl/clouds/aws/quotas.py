"""EC2's quotas, in vCPUs; families of instance types share them. Also how to request more. Pure.

Codes are those of Service Quotas for the service `ec2` (EC2 User Guide, "On-Demand Instance quotas" and "Spot Instance
quotas"). A family is the letters that a type's name begins with, or a whole family where letters do not decide.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class QuotaPool(NamedTuple):
    """Families whose spot machines share a quota of vCPUs in a region, and its codes; `wider` are the families that
    share the one of on-demand machines, if these are more."""

    name: str
    families: frozenset[str]
    spot: str
    on_demand: str
    wider: frozenset[str] = frozenset()

    def family(self, *, spot: bool) -> str:
        """The pool's families as part of a quota's name."""
        return "+".join(sorted(self.families if spot else self.wider or self.families))

    def code(self, *, spot: bool) -> str:
        return self.spot if spot else self.on_demand


STANDARD = QuotaPool(
    "Standard (A, C, D, H, I, M, R, T, Z)", frozenset("a c d h i im is m r t z".split()), "L-34B43A08", "L-1216C47A"
)
_POOLS = (
    STANDARD,
    QuotaPool("F", frozenset({"f"}), "L-88CF9481", "L-74FC7D96"),
    QuotaPool("G and VT", frozenset({"g", "gr", "vt"}), "L-3819A6DF", "L-DB2E81BA"),
    QuotaPool("P2, P3 and P4", frozenset("p2 p3 p3dn p4d p4de".split()), "L-7212CCBC", "L-417A185B", frozenset({"p"})),
    QuotaPool("P5", frozenset({"p5", "p5e", "p5en"}), "L-C4BD4855", "L-417A185B", frozenset({"p"})),
    QuotaPool("X", frozenset({"x"}), "L-E3A00192", "L-7295265B"),
    QuotaPool("Inf", frozenset({"inf"}), "L-B5D1601B", "L-1945791B"),
    QuotaPool("Trn", frozenset({"trn"}), "L-6B0D517C", "L-2C3B7624"),
    QuotaPool("DL", frozenset({"dl"}), "L-85EED4F7", "L-6E869C2A"),
)
_LETTERS = re.compile(r"[a-z]+")


def pool_of(instance_type: str) -> QuotaPool | None:
    """The pool of an instance type; None for an unknown family."""
    match = _LETTERS.match(instance_type)
    names = {match[0] if match else "", instance_type.partition(".")[0]}
    return next((pool for pool in _POOLS if names & pool.families), None)


def raise_command(code: str, region: str) -> str:
    """The command that requests a higher quota; AWS decides within hours or days."""
    return (
        f"aws service-quotas request-service-quota-increase --region {region} --service-code ec2 --quota-code {code}"
        " --desired-value VCPUS"
    )
