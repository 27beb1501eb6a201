"""Settings: one value object, read once, from the file, then the environment, then the flags.

Credentials are not settings: each SDK reads them itself.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from bidbrain.gavel import ENTITY_POLICIES, POLICIES
from bidbrain.queue.values import MEAN_COMPLETION, ROUND_SECONDS, QueueTerms, QueueUser
from spotctl.home.cloud import (
    TAG_NAME,
    TAG_VALUE,
    CloudAccount,
    cloud_of,
    parsed_table,
    rented_clouds,
)
from spotctl.home.errors import BadSettings
from spotctl.home.quotas import Quota, quotas_from

FILE_NAME = "config.toml"
_PREFIX = "SPOTCTL_"
_MAX_WORKERS = 64
_MAX_WEIGHT = 1000
_MAX_ROUND = 1440
PRICE_CATALOG = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master"
CATALOG_REPOSITORY = "https://github.com/skypilot-org/skypilot-catalog"
ADDRESS = "https://checkip.amazonaws.com"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set: in the file by these names, in the environment as
    `SPOTCTL_<NAME>`.

    `monthly_budget` in dollars is compared with each month's costs in reports, and each of
    `monthly_budgets` with those of the runs that have a tag, such as `user=ada`. `tags` are those
    of all jobs. The queues of jobs that share quotas have the policy `queue_policy`, unless their
    jobs name another. `price_catalog_url` is the public catalog of prices that is read for clouds
    without an account (empty: none is), and its history is in `price_catalog_repository`.
    `address_url` tells this computer its public address. `keys` and `tables` are the settings of
    clouds: single ones, such as an endpoint, and the tables named after clouds.
    """

    home: Path
    fetch_workers: int = 8
    monthly_budget: float | None = None
    monthly_budgets: Mapping[str, float] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    queue_policy: str = MEAN_COMPLETION
    queue_users: Mapping[str, QueueUser] = field(default_factory=dict)
    queue_round_minutes: float = ROUND_SECONDS / 60
    price_catalog_url: str = PRICE_CATALOG
    price_catalog_repository: str = CATALOG_REPOSITORY
    address_url: str = ADDRESS
    keys: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, object] = field(default_factory=dict)

    @property
    def price_store(self) -> Path:
        return self.home / "prices"

    def text(self, name: str) -> str | None:
        """A cloud's setting that is a string; None if it is not set."""
        value = self.keys.get(name)
        return None if value is None else str(value)

    def flag(self, name: str) -> bool:
        """A cloud's setting that is true or false; false if it is not set."""
        return bool(self.keys.get(name))

    def queue_terms(self, policy: str | None = None) -> QueueTerms:
        """How jobs share quotas, by a policy that they name."""
        return QueueTerms(
            policy or self.queue_policy, self.queue_users, self.queue_round_minutes * 60
        )

    def table(self, cloud: str, kind: type[T]) -> T:
        """The table that is named after a cloud, which is of this kind."""
        table = self.tables.get(cloud)
        assert table is None or isinstance(table, kind)
        return kind() if table is None else table


def is_traced(settings: Settings, account: CloudAccount) -> bool:
    """Whether a cloud's account is set up on this computer, as far as it can be seen without asking
    the cloud.
    """
    is_set = any(os.environ.get(variable) for variable in account.variables)
    is_chosen = any(settings.text(name) is not None for name in account.names)
    if is_set or is_chosen:
        return True

    for variable, usual, name in account.files:
        path = Path(os.environ.get(variable) or usual).expanduser()
        if (path / name).is_file():
            return True
    return False


def load(environ: Mapping[str, str], home: Path | None = None) -> Settings:
    """The settings; `home` is the flag, which overrides file and environment."""
    stated = home or environ.get(f"{_PREFIX}HOME")
    if not stated:
        import platformdirs

        stated = platformdirs.user_data_path("spotctl")

    root = Path(stated).expanduser()
    path = root / FILE_NAME
    try:
        in_file = tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        in_file = {}
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadSettings(f"{path}: not valid TOML: {error}") from error

    settings = _with(Settings(home=root), in_file, f"{path}: ")
    named = {}
    for name, value in environ.items():
        if name.startswith(_PREFIX):
            named[name.removeprefix(_PREFIX).lower()] = value

    named.pop("home", None)
    # Machines of jobs have further SPOTCTL_* variables, so unknown ones are not an error here.
    known = {name: named[name] for name in named if name in _PARSERS or name in setting_names()}
    return _with(settings, known, f"environment: {_PREFIX}")


def _with(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    for name, value in values.items():
        # Settings of clouds are looked up last: their descriptors are imported for that.
        try:
            if name in _PARSERS:
                settings = replace(settings, **{name: _PARSERS[name](value)})  # type: ignore[arg-type]
            elif name in _keys():
                settings = replace(settings, keys={**settings.keys, name: _keys()[name](value)})
            elif name in _tables():
                settings = replace(
                    settings, tables={**settings.tables, name: _tables()[name](value)}
                )
            else:
                raise BadSettings(
                    f"{where}unknown setting {name}; the settings are {', '.join(setting_names())}"
                )
        except ValueError as error:
            shown = name.upper() if where.endswith(_PREFIX) else name
            raise BadSettings(f"{where}{shown} is {value!r}, but must be {error}") from None
    return settings


def _from_one_to(most: int, kind: type[int | float], what: str, value: object) -> float:
    """A number of a kind, as a value of the file or as text; its form is that of a setting in the
    environment.
    """
    text, form = str(value), "[0-9]+" if kind is int else r"[0-9]+(\.[0-9]+)?"
    if not re.fullmatch(form, text) or not 1 <= float(text) <= most:
        raise ValueError(f"{what} from 1 to {most}")
    return kind(text)


def _dollars(value: object) -> float:
    try:
        amount = float(str(value).removesuffix(" USD"))
    except ValueError:
        amount = 0.0
    if not 0 < amount < inf:
        raise ValueError("an amount in dollars, such as 250")
    return amount


def _budgets(value: object) -> Mapping[str, float]:
    given, budgets = value, dict[str, float]()
    if isinstance(value, str):
        # A tag has an equals sign of its own.
        pairs = (pair.rpartition("=") for pair in value.split(","))
        given = {tag.strip(): amount.strip() for tag, _, amount in pairs}

    for tag, amount in given.items() if isinstance(given, Mapping) else [("", "")]:
        if not re.fullmatch(f"{TAG_NAME}={TAG_VALUE}", str(tag)):
            raise ValueError("a table of tags and dollars, such as 'user=ada' = 250")
        budgets[str(tag)] = _dollars(amount)
    return budgets


def _tags(value: object) -> Mapping[str, str]:
    tags = dict[str, str]()
    for name, text in _pairs(value):
        if not re.fullmatch(TAG_NAME, name) or not re.fullmatch(TAG_VALUE, text):
            example = "such as team = 'search'"
            raise ValueError(f"a table of names and values, both of a-z, 0-9, - and _, {example}")
        tags[name] = text
    return tags


def _pairs(value: object) -> list[tuple[str, str]]:
    """The names and values of a table, or of its text in a variable; a pair without names for
    anything else.
    """
    if isinstance(value, str):
        written = [pair.partition("=") for pair in value.split(",")]
        return [(name.strip(), text.strip()) for name, _, text in written]
    if isinstance(value, Mapping):
        return [(str(name), str(text)) for name, text in value.items()]
    return [("", "")]


def _url_or_none(value: object) -> str:
    url = str(value)
    if url and not url.startswith(("http://", "https://")):
        raise ValueError("an address that begins with https://, or empty to ask for nothing")
    return url


def _queue_policy(value: object) -> str:
    known = (MEAN_COMPLETION, *POLICIES)
    if value not in known:
        raise ValueError(f"one of {', '.join(known)}")
    return str(value)


def _queue_users(value: object) -> Mapping[str, QueueUser]:
    """Weights by user, and under policy `hierarchical` the order of a user's jobs: `ada=2 fifo`."""
    users = dict[str, QueueUser]()
    for name, text in _pairs(value):
        weight, _, order = text.partition(" ")
        is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", weight)
        is_weight = is_number and 0 < float(weight) <= _MAX_WEIGHT
        is_order = order in ("", *ENTITY_POLICIES)
        if not re.fullmatch(TAG_VALUE, name) or not is_weight or not is_order:
            raise ValueError(
                f"a table of users and weights up to {_MAX_WEIGHT}, such as ada = 2 or bob = '1 "
                "fifo'"
            )
        users[name] = QueueUser(float(weight), order or ENTITY_POLICIES[0])

    return users


_PARSERS: Mapping[str, Callable[[object], object]] = {
    "address_url": _url_or_none,
    "fetch_workers": partial(_from_one_to, _MAX_WORKERS, int, "a whole number"),
    "monthly_budget": _dollars,
    "monthly_budgets": _budgets,
    "price_catalog_repository": str,
    "price_catalog_url": _url_or_none,
    "queue_policy": _queue_policy,
    "queue_round_minutes": partial(_from_one_to, _MAX_ROUND, float, "minutes"),
    "queue_users": _queue_users,
    "quotas": quotas_from,
    "tags": _tags,
}


@cache
def _keys() -> Mapping[str, Callable[[object], object]]:
    """The parsers of the clouds' single settings."""
    return {
        name: form
        for cloud in rented_clouds()
        for name, form in cloud_of(cloud).settings_of_machines.keys.items()
    }


@cache
def _tables() -> Mapping[str, Callable[[object], object]]:
    """The parsers of the clouds' tables."""
    return {
        cloud: partial(parsed_table, cloud_of(cloud).settings_of_machines.table)
        for cloud in rented_clouds()
    }


def setting_names() -> list[str]:
    """The names of all settings."""
    return sorted({*_PARSERS, *_keys(), *_tables()})
