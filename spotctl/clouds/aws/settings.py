"""Settings of machines on AWS. By default they use the account's default network, rules made for each run, and an
image that fits the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotctl.home.cloud_settings import address_ranges


@dataclass(frozen=True, slots=True)
class AwsMachineSettings:
    """`[aws]`. The lists of subnets and security groups cover all regions; each entry is used in its own region.

    Without `security_groups`, each run has one of its own, which admits ssh from `ssh_from` (address ranges such as
    203.0.113.7/32) and everything from machines of the run. With `private_ssh`, machines that have a public address
    are nevertheless reached at their private one. `roles` are the IAM roles that machines may have. `tags` are the
    company's, on everything that is made. Without `regions`, machines are looked for in all regions that the account
    has enabled.
    """

    regions: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    kms_key: str | None = None
    image: str | None = None
    roles: tuple[str, ...] = ("spotctl",)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", address_ranges(self.ssh_from))
