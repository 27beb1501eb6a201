"""Settings of machines on Azure. By default they use the account's default network, rules made for each run, and an
image that fits the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotctl.home.cloud_settings import address_ranges


@dataclass(frozen=True, slots=True)
class AzureMachineSettings:
    """`[azure]`. `identity`, `subnet`, `security_group` and `disk_encryption_set` are resource ids.

    `identity` is the user-assigned managed identity of the machines: with it, a machine deletes itself at the end of
    its lease. Without a `subnet`, a run gets a network of its own. Without a `security_group`, that network's rules
    admit its own machines, and ssh from `ssh_from`. Without `public_ip`, or with `private_ssh`, machines are reached at
    their private address; without the first, they need another way to the internet. `image` is a resource id or
    `publisher:offer:sku:version`; by default Ubuntu,
    with NVIDIA's drivers on machines with GPUs. `tags` are the company's, on everything that is made.
    """

    identity: str | None = None
    subnet: str | None = None
    security_group: str | None = None
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    image: str | None = None
    disk_type: str = "StandardSSD_LRS"
    disk_encryption_set: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", address_ranges(self.ssh_from))
