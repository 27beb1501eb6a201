"""Gaps in the ranked offers: clouds without current prices, and the filter that no machine passes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf

from pricing_data.accelerators import GPU_MEMORY_GIB
from pricing_data.catalog import Catalog
from pricing_data.freshness import STALE, CloudPrices, freshness_of_stored
from pricing_data.library import Library, Selection
from pricing_data.market import is_region_of
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest
from spotctl.lab.best.offers import MachineWish, RankedOffer, priced_markets


@dataclass(frozen=True, slots=True)
class LastFilter:
    """The filter, as an option, that left none of the markets which the filters before it had left."""

    option: str
    before: int


def check_gpu(wish: MachineWish, catalog: Catalog) -> None:
    """Raises `BadRequest` for a GPU that no known machine has."""
    known = catalog.accelerators | GPU_MEMORY_GIB.keys()
    named = wish.gpu.upper()
    if wish.gpu and not any(name.upper() == named or name.upper().startswith(f"{named}-") for name in known):
        raise BadRequest(f"--gpu {wish.gpu}: {catalog.unknown_accelerator(named, known)}")


def cloud_prices(library: Library, wish: MachineWish, fitting: Sequence[RankedOffer], now: int) -> list[CloudPrices]:
    """How current the prices of the rented clouds are that a wish allows; `fitting` are all offers for it."""
    seen: dict[str, int] = {}
    for offer in fitting:
        if not offer.shipped:
            seen[offer.market.cloud] = max(offer.seen, seen.get(offer.market.cloud, 0))
    return [
        CloudPrices(cloud, seen[cloud] if now - seen.get(cloud, 0) <= STALE else _newest(library, cloud))
        for cloud in _asked_clouds(wish.selection)
    ]


def _asked_clouds(selection: Selection) -> Iterator[str]:
    for cloud in rented_clouds():
        if selection.clouds and cloud not in selection.clouds:
            continue
        if selection.pattern and not fnmatchcase(cloud, selection.pattern.partition("/")[0].lower()):
            continue
        if not selection.regions or any(is_region_of(cloud, region) for region in selection.regions):
            yield cloud


def _newest(library: Library, cloud: str) -> int | None:
    """The moment of a cloud's newest price, also of machines that do not fit."""
    markets = library.select(Selection(clouds=(cloud,)))
    moments = [prices.newest for prices in freshness_of_stored(library, markets) if prices.newest is not None]
    moments += [figure.as_of for figure in library.store.interruptions(cloud) if figure.measure == "saving"]
    return max(moments, default=None)


def last_filter(library: Library, wish: MachineWish) -> LastFilter | None:
    """The filter that no market passes; None if markets pass them all."""
    before = 0
    for option, looser in _steps(wish):
        left = len(priced_markets(library, looser))
        if not left:
            return LastFilter(option, before)
        before = left
    return None


def _steps(wish: MachineWish) -> Iterator[tuple[str, MachineWish]]:
    """The wish with one filter, with two, and so on."""
    whole, so_far = wish.selection, MachineWish(Selection(), os=wish.os)
    yield f"--os {wish.os}", so_far
    parts: list[tuple[str, dict[str, object]]] = [
        (repr(whole.pattern), {"pattern": whole.pattern}),
        (" ".join(f"--cloud {name}" for name in whole.clouds), {"clouds": whole.clouds}),
        (" ".join(f"--region {name}" for name in whole.regions), {"regions": whole.regions}),
        (" ".join(f"--type {name}" for name in whole.types), {"types": whole.types}),
        (f"--vcpus {_range_text(whole.vcpus or (0, inf))}", {"vcpus": whole.vcpus}),
    ]
    for option, change in parts:
        if any(change.values()):
            so_far = replace(so_far, selection=replace(so_far.selection, **change))  # type: ignore[arg-type]
            yield option, so_far
    if wish.gpu:
        so_far = replace(so_far, gpu=wish.gpu)
        yield f"--gpu {wish.gpu}", so_far
        so_far = replace(so_far, gpus=wish.gpus)
        yield f"--gpu {wish.gpu}:{_range_text(wish.gpus)}", so_far
    yield f"--memory {_range_text(wish.memory)}", replace(so_far, memory=wish.memory)


def _range_text(limits: tuple[float, float]) -> str:
    """A range as an option takes it."""
    low, high = limits
    if low == high:
        return f"{low:g}"
    return f"{low:g}.." if high >= 1 << 30 else f"{f'{low:g}' if low else ''}..{high:g}"
