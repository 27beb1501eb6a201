"""Prices, capacity and quotas of a simulated AWS, and the images that it offers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from moto.ec2.models.amis import Ami

from tests.cloud.api import now_micros
from tests.cloud.aws_orders import vcpus_of
from tests.cloud.images import images
from tests.servers.aws import SpotPriceRow

USD_PER_VCPU_HOUR = 0.0425
SPOT_SHARE = 0.35
_HOUR = 3600 * 1_000_000
_WEEK = 7 * 24 * _HOUR
_WEEKS = (1.0, 0.98, 1.01, 0.99)
"""Weekly changes of a spot price, until an hour ago."""
_PRODUCT = "Linux/UNIX"

SPOT_QUOTA, ON_DEMAND_QUOTA = "L-34B43A08", "L-1216C47A"
"""The quotas of the standard families."""

# EC2 User Guide, "Spot Instance quotas" and "On-Demand Instance quotas": what the families of each
# line share.
_SHARED = (
    (
        SPOT_QUOTA,
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        r"[acdhimrtz]\d|im\d|is\d",
    ),
    ("L-88CF9481", "All F Spot Instance Requests", r"f\d"),
    ("L-3819A6DF", "All G and VT Spot Instance Requests", r"gr?\d|vt\d"),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", r"p[234]"),
    ("L-C4BD4855", "All P5 Spot Instance Requests", r"p5"),
    ("L-E3A00192", "All X Spot Instance Requests", r"x\d"),
    ("L-B5D1601B", "All Inf Spot Instance Requests", r"inf\d"),
    ("L-6B0D517C", "All Trn Spot Instance Requests", r"trn\d"),
    ("L-85EED4F7", "All DL Spot Instance Requests", r"dl\d"),
    (
        ON_DEMAND_QUOTA,
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        r"[acdhimrtz]\d|im\d|is\d",
    ),
    ("L-74FC7D96", "Running On-Demand F instances", r"f\d"),
    ("L-DB2E81BA", "Running On-Demand G and VT instances", r"gr?\d|vt\d"),
    ("L-417A185B", "Running On-Demand P instances", r"p\d"),
    ("L-7295265B", "Running On-Demand X instances", r"x\d"),
    ("L-1945791B", "Running On-Demand Inf instances", r"inf\d"),
    ("L-2C3B7624", "Running On-Demand Trn instances", r"trn\d"),
    ("L-6E869C2A", "Running On-Demand DL instances", r"dl\d"),
)
QUOTAS = {code: name for code, name, _ in _SHARED}


def quota_of(instance_type: str, *, spot: bool) -> str:
    """The code of the quota of vCPUs that a type counts against; KeyError for a family that none
    covers.
    """
    for code, name, families in _SHARED:
        if ("Spot" in name) is spot and re.match(families, instance_type):
            return code
    raise KeyError(instance_type)


@dataclass
class AwsMarket:
    """`capacity` is the machines left by (zone, type), unlimited if unset; `quotas` are vCPUs by
    quota code.
    """

    capacity: dict[tuple[str, str], int] = field(default_factory=dict)
    quotas: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 1152.0))
    on_demand_usd: dict[str, float] = field(default_factory=dict)
    spot_usd: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    until: int = field(default_factory=now_micros)

    @property
    def since(self) -> int:
        """When prices begin."""
        return self.until - 13 * _WEEK - _HOUR

    def on_demand(self, name: str) -> float:
        """USD per hour."""
        return self.on_demand_usd.get(name, round(vcpus_of(name) * USD_PER_VCPU_HOUR, 6))

    def spot_changes(self, zone: str, name: str) -> list[tuple[int, float]]:
        """The changes of a spot price, from long ago on."""
        if (zone, name) not in self.spot_usd:
            usd = self.on_demand(name) * SPOT_SHARE
            weeks = range(self.since, self.until, _WEEK)
            self.spot_usd[zone, name] = [
                (when, round(usd * _WEEKS[number % len(_WEEKS)], 6))
                for number, when in enumerate(weeks)
            ]
        return self.spot_usd[zone, name]

    def spot(self, zone: str, name: str) -> float:
        """USD per hour now."""
        return self.spot_changes(zone, name)[-1][1]

    def free(self, zone: str, name: str) -> float:
        return self.capacity.get((zone, name), float("inf"))

    def take(self, zone: str, name: str, count: int) -> None:
        if (zone, name) in self.capacity:
            self.capacity[zone, name] -= count

    def price_rows(self, region: str) -> list[SpotPriceRow]:
        """The history of the markets whose prices were set or asked for."""
        return [
            SpotPriceRow(region, zone, name, _PRODUCT, when, f"{usd:.6f}")
            for (zone, name), changes in sorted(self.spot_usd.items())
            for when, usd in changes
            if zone.startswith(region)
        ]


def quota_answer(quotas: Mapping[str, float], asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """GetServiceQuota for EC2."""
    code = asked.get("QuotaCode", "")
    if asked.get("ServiceCode") != "ec2" or code not in quotas:
        return None
    return {
        "Quota": {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaCode": code,
            "QuotaName": QUOTAS.get(code, code),
            "Value": quotas[code],
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
    }


def public_image(name: str, backend: Any) -> dict[str, Any] | None:  # noqa: ANN401  # moto's
    """GetParameter for a public image that moto does not have, which exists from then on."""
    known = images("aws").get(name.lower())
    if known is None:
        return None
    id_ = "ami-" + sha256(f"{backend.region_name} {name}".encode()).hexdigest()[:17]
    if id_ not in backend.amis:
        backend.amis[id_] = Ami(
            backend,
            id_,
            name=name.removeprefix("/aws/service/"),
            owner_id="099720109477",
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture=known.architecture,
            root_device_type="ebs",
            region_name=f"{backend.region_name}a",
        )
    return {
        "Parameter": {
            "Name": name,
            "Type": "String",
            "Value": id_,
            "Version": 1,
            "DataType": "aws:ec2:image",
        }
    }
