"""Settings of machines on Google Cloud. By default they use the account's default network, rules made for each run,
and an image that fits the type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spotctl.home.cloud_settings import address_ranges

_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class GcpMachineSettings:
    """`[gcp]`. Networks are named as Google does: `default`, or `projects/P/regions/R/subnetworks/S`.

    Machines are in `subnetwork`, or else in `network`. With `network_tags` they carry these tags, and the network's own
    firewall rules apply to them; otherwise each run gets rules that admit its own machines, and ssh from `ssh_from`
    (address ranges such as 203.0.113.7/32). Without `public_ip`, or with `private_ssh`, the launcher must be able to
    reach private addresses.
    `labels` are the company's, on everything that has labels. `disk_gib` is for jobs that name no size. A machine is
    ended by Google itself after `longest_hours`, whatever its lease says.
    """

    network: str = "default"
    subnetwork: str | None = None
    network_tags: tuple[str, ...] = ()
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    service_account: str | None = None
    image: str | None = None
    disk_gib: int = 50
    kms_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    longest_hours: int = 168

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", address_ranges(self.ssh_from))
        for key, value in self.labels.items():
            if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)) or key.startswith("spotctl-"):
                raise ValueError(
                    "labels of up to 63 lowercase letters, digits, _ and -, whose keys start with a letter but not with"
                    f" spotctl-, not {key} = {value!r}"
                )
        if not 1 <= self.longest_hours <= 2880:
            raise ValueError(f"from 1 to 2880 in longest_hours (Google's limit is 120 days), not {self.longest_hours}")
        if self.disk_gib < 10:
            raise ValueError(f"10 or more in disk_gib, which the image needs, not {self.disk_gib}")
