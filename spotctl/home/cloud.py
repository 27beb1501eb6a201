"""`Cloud`: the descriptor of a cloud, which everything else asks instead of knowing the cloud by
name.

A descriptor stands in the module `cloud` of the cloud's package and holds values. What needs an SDK
or takes time to import stands in further modules of the package, its parts:

- `terms`: `TERMS`, how the cloud bills spot machines and takes them back (`bidbrain.billing.rules`)
- `prices`: `source(settings)`, `NEEDS` and `EFFORTS`, where its prices come from
- `offers`: `recorded(settings, since, until)`, the snapshots of the hosts of a cloud where the
  highest bid runs; `left_out(settings, until)`, how many of them no job may use, by the reason, and
  `traffic(settings, until)`, what a GB usually costs there
- `machine_types`: `shipped()`, `traits_of(name)` and `obstacle(machine)`, what is known of its
  machine types without an account (`pricing_data.catalog`); `FABRIC`, if some have a network that
  is faster than TCP, and `NOT_ON_DEMAND`, if some have a list price and are not sold at it
- `setup`: `opened(settings, region, types)`, what an account needs once
- `provider`: `provider(settings, regions, agents, prices)`, which rents its machines
- `doctor`: `is_configured(settings)`, `findings(settings)` and `SETUP`; `policies(settings)`
- `bills`: `FORMAT`, how its bill exports are read; `FOCUS`, its use of the columns of FOCUS, if it
  exports that
- `machine`: what the agent on a machine needs: `notices(environment)`; only agileml and the
  standard library
- `self_deletion`: how a machine deletes itself; part of the start-up script, so only the standard
  library
- `storage`: `bucket(name, who)` and `MACHINE`, its object store for the agent; obstore is imported
  at the first use
- `buckets`: the same for the launcher: `LAUNCHER`, its identity, `region_of(name, who)`,
  `copy(...)` and `drop_abandoned(...)`

Only `terms`, `prices`, `provider` and `doctor` are required of a cloud that rents machines. One
with an object store has `storage` and `buckets`, too, and its package says in `SCHEME` and `FORM`
how locations there are written.
"""

import ipaddress
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from pricing_data.known_clouds import CloudMarkets, cloud_names, descriptor_of, is_cloud, markets_of


@dataclass(frozen=True, slots=True)
class CloudWords:
    """How messages and reports name a cloud; `provider` and `service` are its names in FOCUS."""

    title: str
    provider: str
    service: str
    spot_request: str = ""
    """The meaning of a spot request on a cloud that takes no bids."""


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """A cloud's part of the settings: `table` is the dataclass of the table that is named after the
    cloud.

    `keys` are single settings with their parsers. `variables` are the SDK's own variables for some
    of them: a machine lacks these, so a runner on a machine gets the settings, and `on_machines` in
    addition if it gets any. `identity` and `image` name the settings in the table that are the
    machines' identity and image, and `networks` those that name networks or rules of the company's
    own.
    """

    table: type
    keys: Mapping[str, Callable[[object], object]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    on_machines: Mapping[str, bool] = field(default_factory=dict)
    identity: str = ""
    image: str = ""
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloudAccount:
    """How an account is set up on this computer: `setup` says the command, `guide` is the page with
    what to do once per account.

    Where it is set up, there is one of these variables, of these files or of the settings with
    these `names`. A file has the variable that names it or its folder, where that is otherwise, and
    its name in the folder.
    """

    setup: str
    guide: str
    variables: tuple[str, ...] = ()
    files: tuple[tuple[str, str, str], ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UsedReservations:
    """Reserved machines of a cloud, which spotctl uses. `form` is a regular expression of their
    ids, such as `example`, and `zone` an example of their zones.

    `block_ends_early` is how long before its end a block loses its machines; None on a cloud
    without blocks. Where `regional`, a reservation can be without a zone: the job file names the
    region instead. Machines of only some clouds can be placed `close` together in a reservation.
    """

    form: str
    example: str
    zone: str
    block_ends_early: int | None = None
    regional: bool = False
    close: bool = False


@dataclass(frozen=True, slots=True)
class JobKeys:
    """Words of a job file about a cloud: the key of its images, the kind of its machines' identity,
    a large region.

    `reservations` is None where spotctl uses none.

    Machines with `ports` have no common network: others reach each one only at the address of a
    router, which forwards the ports that an order names. The two names are those of the machine's
    variables: one has that address, the other the router's port for a port of the machine, which
    stands for `{}`. Such machines run commands of one node, and trainings.
    """

    image: str
    image_help: str
    image_example: str
    identity: str = ""
    region: str = ""
    reservations: UsedReservations | None = None
    ports: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud; `settings` is None if it rents nothing, `job` if job files say nothing of it."""

    name: str
    words: CloudWords
    markets: CloudMarkets
    settings: CloudSettings | None = None
    job: JobKeys | None = None
    packages: tuple[str, ...] = ()
    """The packages through which it is reached, which a runner on one of its machines imports, too:
    first the SDK that rents machines."""
    extras: tuple[tuple[str, str, str], ...] = ()
    """Optional packages: of each its module, the extra of spotctl that installs it, and what needs
    it."""
    account: CloudAccount | None = None
    """None where nothing is known of its accounts."""
    policies: tuple[str, ...] = ()
    """The documents of minimal permissions that the part `doctor` has."""
    shares_folders: bool = False
    """Whether its machines see folders of this computer, under the same paths."""

    @property
    def settings_of_machines(self) -> CloudSettings:
        """The settings of a cloud that rents machines."""
        assert self.settings is not None
        return self.settings


def cloud_of(name: str) -> Cloud:
    """The descriptor of a known cloud."""
    return cast("Cloud", descriptor_of(name))


def mapped_ports(cloud: str) -> tuple[str, str] | None:
    """The variables by which the machines of a cloud reach each other; None if they share a
    network."""
    job = cloud_of(cloud).job
    return None if job is None else job.ports


def is_replayed(provider: str) -> bool:
    """Whether the runs of a provider are on a replayed market, where nothing is billed."""
    return is_cloud(provider) and markets_of(provider).is_synthetic


def rented_clouds() -> tuple[str, ...]:
    """The clouds that rent machines, in the order of lists: all but the local market."""
    return tuple(name for name in cloud_names() if cloud_of(name).settings is not None)


def identities() -> list[str]:
    """The identity of machines as each cloud calls it, such as `instance profile (aws)`."""
    jobs = ((name, cloud_of(name).job) for name in rented_clouds())
    return [f"{job.identity} ({name})" for name, job in jobs if job is not None and job.identity]


T = TypeVar("T")

TAG_NAME = "[a-z][-a-z0-9_]{0,62}"
TAG_VALUE = "[-a-z0-9_]{1,63}"
"""The form of tags that every cloud accepts, as patterns."""


def text(value: object) -> str | None:
    """A string; None if it is empty."""
    if not isinstance(value, str):
        raise ValueError("a string in quotes")
    return value or None


def flag(value: object) -> bool:
    """True or false, also as text from an environment variable."""
    word = str(value).lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"


def address_range(text: str) -> str:
    """An address range from which ssh may be admitted, as the clouds write it. Raises ValueError
    for any other.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"address ranges such as 203.0.113.7/32, not {text!r}") from None

    if network.prefixlen == 0:
        raise ValueError(
            f"a narrower address range than {text} (which would let the whole internet try to log "
            "in)"
        )
    return str(network)


def address_ranges(ssh_from: tuple[str, ...]) -> tuple[str, ...]:
    """The address ranges of a setting `ssh_from`."""
    try:
        return tuple(map(address_range, ssh_from))
    except ValueError as error:
        raise ValueError(f"{error}, in ssh_from") from None


def parsed_table(kind: type[T], value: object) -> T:
    """A cloud's table of this kind, also from its lines as text, as an environment variable has
    them.
    """
    if isinstance(value, str):
        try:
            value = tomllib.loads(value)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"lines such as 'public_ip = false' ({error})") from None

    if not isinstance(value, Mapping):
        raise ValueError("a table of settings")

    known: dict[str, object] = {
        setting.name: setting.default_factory()
        if callable(setting.default_factory)
        else setting.default
        for setting in fields(cast("Any", kind))
    }

    if unknown := sorted(set(value) - set(known)):
        raise ValueError(
            f"settings among {', '.join(sorted(known))}; {unknown[0]} is not one of them"
        )

    return kind(**{name: _checked(name, setting, known[name]) for name, setting in value.items()})


def _checked(name: str, value: object, default: object) -> object:
    """The value, if it is of the kind of the default; a string where that is None."""
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(text, str) and text for text in value):
            return tuple(value)
        raise ValueError(f'a list of strings for {name}, such as {name} = ["..."]; it is {value!r}')
    if isinstance(default, Mapping):
        # By an entry of the default; without one, of strings.
        kind = type(next(iter(default.values()), ""))
        if isinstance(value, Mapping) and all(_is_a(kind, item) for item in value.values()):
            return {key: kind(item) for key, item in value.items()}
        kinds, example = ("strings", '"..."') if kind is str else ("numbers", "0.5")
        raise ValueError(
            f"a table of {kinds} for {name}, such as {name} = {{team = {example}}}; it is {value!r}"
        )

    kind = str if default is None else type(default)
    if _is_a(kind, value):
        return float(cast("int", value)) if kind is float else value
    raise ValueError(f"{_KINDS[kind]} for {name}; it is {value!r}")


def _is_a(kind: type, value: object) -> bool:
    """Whether a value is of a kind; a whole number is a number, true is none."""
    return type(value) is kind or (kind is float and type(value) is int)


_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
}
