"""`spotctl prices best`: one ranked table over all clouds."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.freshness import STALE
from pricing_data.units import HOUR, SECOND, age, counted, parse_duration
from spotctl.cli.boundary import DONE, NOT_IN_TIME
from spotctl.cli.options import (
    CloudOption,
    GlobArgument,
    RegionOption,
    TypeOption,
    VcpusOption,
    number_range,
    operating_system,
    selection,
)
from spotctl.cli.session import JsonOption, Session
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.library import Library
    from spotctl.home.config import Settings
    from spotctl.lab.best.offers import MachineWish, RankedOffer

GpuOption = Annotated[str, typer.Option(help="Only machines with these GPUs: A100, A100:8, T4:2..4.")]
MemoryOption = Annotated[str, typer.Option(help="Only machines with this much memory in GiB: 64.., 16..64.")]
OsOption = Annotated[str, typer.Option("--os", help="Operating system: linux, windows, rhel, suse.")]
LostOption = Annotated[
    str,
    typer.Option(help="Time that an eviction costs: work since the last checkpoint, plus waiting for another machine."),
]
MaxAgeOption = Annotated[
    str,
    typer.Option(help="Only prices seen within this time: 36h.", show_default="7d, or estimates from shipped lists"),
]


def best(
    context: typer.Context,
    glob: GlobArgument = "",
    gpu: GpuOption = "",
    vcpus: VcpusOption = "",
    memory: MemoryOption = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    os_: OsOption = "linux",
    sort: Annotated[
        str, typer.Option(help="Rank by price, gpu, vcpu, useful, eviction or age.", show_default="gpu, else price")
    ] = "",
    limit: Annotated[int, typer.Option(help="Show this many offers.", min=1)] = 20,
    max_age: MaxAgeOption = "",
    lost: LostOption = "15m",
    json_: JsonOption = False,
) -> int:
    """Rank the cheapest machines that fit, across all clouds, regions and zones.

    The price per useful hour includes what evictions cost. Estimated prices are marked: the on-demand price minus the
    saving that the cloud publishes, both from shipped lists for Google Cloud until you fetch its prices; those have the
    date of the list. Clouds whose prices are missing, or older than a week, are named first.

    Exit codes: 3 if no offer fits.

    Example: spotctl prices best --gpu A100:8
    """
    from spotctl.lab.best import coverage, offers as analysis, results
    from spotctl.show.columns import as_json
    from spotctl.show.freshness import fetch_command, freshness_remarks
    from spotctl.show.prices.answers import lost_remarks

    session: Session = context.obj
    wish = wish_of(session.library, glob, gpu, memory, os_, (cloud, region, type_, vcpus))
    now, oldest = wall_us(), parse_duration(max_age) if max_age else STALE
    offers = offers_that_fit(session.settings, wish, lost)
    current = [offer for offer in offers if offer.is_current(now, oldest) or (offer.shipped and not max_age)]
    shown = analysis.ranked(current, sort or ("gpu" if gpu else "price"))[:limit]
    clouds = coverage.cloud_prices(session.library, wish, offers, now)
    removed_by = None if current else coverage.last_filter(session.library, wish)
    if not current and removed_by is None:
        removed_by = coverage.LastFilter(f"--max-age {max_age or age(oldest / SECOND)}", len(offers))
    if json_:
        answer = {
            "offers": shown,
            "clouds": clouds,
            "fetch": fetch_command(clouds, now, region or ()),
            "removed_by": removed_by,
            "lost": session.library.store.lost(),
        }
        session.answer_json(as_json(results.BEST, answer, now))
        return NOT_IN_TIME if removed_by else DONE
    session.remark(*freshness_remarks(clouds, now, region or ()), *lost_remarks(session.library.store.lost()))
    if len(offers) > len(current):
        session.remark(
            f"left out: {counted(len(offers) - len(current), 'offer')} with prices older than {age(oldest / SECOND)}"
            " (update: spotctl prices fetch; or use --max-age)"
        )
    if removed_by:
        left = f"{counted(removed_by.before, 'market')} before it" if removed_by.before else "no market is known"
        session.remark(f"no offer fits: {removed_by.option} leaves none ({left})")
        return NOT_IN_TIME
    session.out.print(results.offers_table(shown, now, session.out.width))
    session.remark(*results.shipped_machines(shown))
    return DONE


def offers_that_fit(settings: Settings, wish: MachineWish, lost: str) -> list[RankedOffer]:
    """All offers that fit a wish, old ones too; `lost` is what an eviction costs."""
    from spotctl.clouds import wiring
    from spotctl.lab.best.offers import offers

    return offers(wiring.library(settings), wish, parse_duration(lost) / HOUR)


def wish_of(
    library: Library,
    glob: str,
    gpu: str,
    memory: str,
    os_: str,
    filters: tuple[list[str] | None, list[str] | None, list[str] | None, str],
) -> MachineWish:
    """The machines that the options ask for; `filters` are clouds, regions, types and vCPUs."""
    from spotctl.lab.best.coverage import check_gpu
    from spotctl.lab.best.offers import MachineWish

    name, _, count = gpu.partition(":")
    wish = MachineWish(
        selection(glob, *filters[:3], vcpus=filters[3]),
        name,
        number_range("--gpu", count) if count else (0, inf),
        number_range("--memory", memory) if memory else (0, inf),
        operating_system(os_),
    )
    check_gpu(wish, library.catalog)
    return wish
