"""The clouds that are installed, each in a package of its own, and their facts about markets.

A cloud is known by an entry point of the group `spotctl.clouds`, which names the descriptor in the
cloud's package. Other facts stand in further modules of the package, its parts: they are imported
when something asks for them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from pricing_data.errors import BadCloudPackage
from pricing_data.units import DAY

GROUP = "spotctl.clouds"
USUAL_LONGEST_PAUSE = 45 * DAY


@dataclass(frozen=True, slots=True)
class CloudMarkets:
    """How a cloud names its spot markets, and how their prices behave.

    `rank` orders clouds in lists. `region` and `zone` are regular expressions of names; `{region}`
    in the latter stands for the region's name. `spell` brings other spellings of a region to the
    one of the cloud's API. `region_of_zone` is for records that name only a zone.
    """

    region: str
    zone: str = r"{region}-?[a-z0-9]+"
    known_regions: frozenset[str] = frozenset()
    spell: Callable[[str], str] = str.lower
    region_of_zone: Callable[[str], str] = str
    rank: int = 100
    zone_id: str = ""
    """A regular expression of names that a zone has in public lists only: accounts name the same
    zones otherwise, each in its own way."""
    takes_bids: bool = True
    """Without bids, a machine keeps running whatever the price of its market."""
    repeats_prices: bool = False
    """Whether every price is repeated at least once a day, so that a longer silence is a hole."""
    longest_pause: int = USUAL_LONGEST_PAUSE
    """How long a price of a file may stay unchanged before the market counts as unwatched."""
    is_synthetic: bool = False
    """Whether the prices were generated rather than observed."""


@cache
def _installed() -> Mapping[str, EntryPoint]:
    """The entry points by the names of their clouds, in the order of lists."""
    # Imported here, as are resources below: most commands need neither to show their help.
    from importlib.metadata import entry_points

    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    in_order = sorted(known, key=lambda name: (markets_of_entry(known[name]).rank, name))
    return {name: known[name] for name in in_order}


def markets_of_entry(entry: EntryPoint) -> CloudMarkets:
    markets = getattr(descriptor_of_entry(entry), "markets", None)
    if not isinstance(markets, CloudMarkets):
        raise BadCloudPackage(
            f"{_origin(entry)}: {entry.value} has no markets; install a version for this spotctl"
        )
    return markets


# `spotctl.home.cloud.Cloud`, which is above this package.
def descriptor_of_entry(entry: EntryPoint) -> Any:  # noqa: ANN401
    try:
        return entry.load()
    except BadCloudPackage:
        raise
    except Exception as error:
        if (needy := _import_that_needs(entry.module)) is not None:
            raise BadCloudPackage(
                f"{_origin(entry)}: {entry.module} imports {needy}, which needs the descriptor in "
                f"{entry.module}; a descriptor holds values, and imports no part of its cloud"
            ) from error
        raise BadCloudPackage(
            f"{_origin(entry)}: {entry.value} cannot be loaded ({error}); install the package "
            "again, or remove it"
        ) from error


def _import_that_needs(descriptor: str) -> str | None:
    """The import in a descriptor's module that needs the descriptor already; None if that module is
    loaded.
    """
    from traceback import walk_stack

    importing = ""
    for frame, _ in walk_stack(None):
        if frame.f_code.co_name != "<module>":
            continue
        name = frame.f_globals["__name__"]
        if name == descriptor:
            return importing
        importing = name

    return None


def _origin(entry: EntryPoint) -> str:
    """A cloud and the package that it comes with."""
    if entry.dist is None:
        return f"cloud {entry.name}"
    return f"cloud {entry.name} of package {entry.dist.name}"


def cloud_names() -> tuple[str, ...]:
    """All clouds, in the order of lists."""
    return tuple(_installed())


def is_cloud(name: str) -> bool:
    return name in _installed()


@cache
def markets_of(cloud: str) -> CloudMarkets:
    """A cloud's facts about markets."""
    return markets_of_entry(_installed()[cloud])


def descriptor_of(cloud: str) -> Any:  # noqa: ANN401 - see above
    """A cloud's descriptor."""
    return descriptor_of_entry(_installed()[cloud])


def part_of(cloud: str, name: str) -> ModuleType:
    """A module of a cloud's package. BadCloudPackage: the package has no such part, or it cannot be
    imported.
    """
    module = f"{_package_of(cloud)}.{name}"
    try:
        return import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module
        problem = f"has no part {name!r}" if missing else f"part {name!r} cannot be loaded: {error}"
        raise BadCloudPackage(f"{_origin(_installed()[cloud])}: {problem} ({module})") from error


def has_part(cloud: str, name: str) -> bool:
    """Whether a cloud's package has a part of this name."""
    return find_spec(f"{_package_of(cloud)}.{name}") is not None


def shipped_lines(table: str) -> Iterator[list[str]]:
    """For each cloud that ships a table of list prices, the lines of its file, with the header."""
    from importlib import resources

    for cloud in _installed():
        package = resources.files(_package_of(cloud))
        path = package / "lists" / f"{table}.csv"
        if path.is_file():
            yield path.read_text(encoding="utf-8").splitlines()


def _package_of(cloud: str) -> str:
    return _installed()[cloud].module.rpartition(".")[0]
