"""Settings of the machines rented in each cloud: tables of the settings file that are named after their cloud.

By default, machines use the account's default network, rules made for each run, and an image that fits the type.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AwsMachineSettings:
    """`[aws]`. The lists of subnets and security groups cover all regions; each entry is used in its own region.

    Without `security_groups`, each run has one of its own, which admits ssh from `ssh_from` (address ranges such as
    203.0.113.7/32) and everything from machines of the run. With `private_ssh`, machines that have a public address
    are nevertheless reached at their private one. `tags` are the company's, on everything that is made.
    Without `regions`, machines are looked for in all regions that the account has enabled.
    """

    regions: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    kms_key: str | None = None
    image: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", _ranges(self.ssh_from))


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
        object.__setattr__(self, "ssh_from", _ranges(self.ssh_from))
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


_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")


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
        object.__setattr__(self, "ssh_from", _ranges(self.ssh_from))


def address_range(text: str) -> str:
    """An address range from which ssh may be admitted, as the clouds write it. Raises ValueError for any other."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"address ranges such as 203.0.113.7/32, not {text!r}") from None
    if network.prefixlen == 0:
        raise ValueError(f"a narrower address range than {text} (which would let the whole internet try to log in)")
    return str(network)


def _ranges(ssh_from: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(map(address_range, ssh_from))
    except ValueError as error:
        raise ValueError(f"{error}, in ssh_from") from None


def table_of(kind: type[T]) -> Callable[[object], T]:
    """The parser of a cloud's table; it also takes the lines of the table as text, from an environment variable."""
    return lambda value: _parsed(kind, value)


def _parsed(kind: type[T], value: object) -> T:
    if isinstance(value, str):
        try:
            value = tomllib.loads(value)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"lines such as 'public_ip = false' ({error})") from None
    if not isinstance(value, Mapping):
        raise ValueError("a table of settings")
    known = {setting.name: _default(setting) for setting in fields(cast("Any", kind))}
    if unknown := sorted(set(value) - set(known)):
        raise ValueError(f"settings among {', '.join(sorted(known))}; {unknown[0]} is not one of them")
    return kind(**{name: _checked(name, given, known[name]) for name, given in value.items()})


def _default(setting: Any) -> object:  # noqa: ANN401 - dataclasses.Field has a parameter for its type
    return {} if callable(setting.default_factory) else setting.default


def _checked(name: str, value: object, default: object) -> object:
    """The value, if it is of the kind of the default; a string where that is None."""
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(text, str) and text for text in value):
            return tuple(value)
        raise ValueError(f'a list of strings for {name}, such as {name} = ["..."]; it is {value!r}')
    if isinstance(default, Mapping):
        if isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values()):
            return dict(value)
        raise ValueError(f'a table of strings for {name}, such as {name} = {{team = "..."}}; it is {value!r}')
    kind = str if default is None else type(default)
    if type(value) is kind:
        return value
    raise ValueError(f"{_KINDS[kind]} for {name}; it is {value!r}")


_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", str: "a string"}
