"""`spotctl prices best`: one ranked table over the known prices, at once or as soon as an offer is
cheap enough.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import HOUR, SECOND, age, counted, parse_duration
from spotctl.cli.boundary import DONE, FAILED, NOT_IN_TIME
from spotctl.cli.options import (
    CloudOption,
    GlobArgument,
    RegionOption,
    TypeOption,
    VcpusOption,
    check_regions,
    number_range,
    operating_system,
    selection,
)
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.library import Selection
    from spotctl.lab.best.offers import MachineWish, RankedOffer
    from spotctl.lab.best.results import PriceCondition


def best(
    context: typer.Context,
    glob: GlobArgument = "",
    gpu: Annotated[
        str, typer.Option(help="Only machines with these GPUs: A100, A100:8, T4:2..4.")
    ] = "",
    vcpus: VcpusOption = "",
    memory: Annotated[
        str, typer.Option(help="Only machines with this much memory in GiB: 64.., 16..64.")
    ] = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    os_: Annotated[
        str, typer.Option("--os", help="Operating system: linux, windows, rhel, suse.")
    ] = "linux",
    sort: Annotated[
        str,
        typer.Option(
            help="Rank by price, gpu, vcpu, useful, eviction or age.",
            show_default="gpu, else price",
        ),
    ] = "",
    limit: Annotated[int, typer.Option(help="Show this many offers.", min=1)] = 20,
    max_age: Annotated[
        str,
        typer.Option(
            help="Only prices seen within this time: 36h.",
            show_default="7d, or estimates from shipped lists; 36h with --below",
        ),
    ] = "",
    lost: Annotated[
        str,
        typer.Option(
            help="Time that an eviction costs: work since the last checkpoint, plus waiting for "
            "another machine."
        ),
    ] = "15m",
    below: Annotated[
        float | None,
        typer.Option(
            help="Wait until an offer is below this many US dollars (with --sort eviction: a "
            "share, 0.05)."
        ),
    ] = None,
    every: Annotated[str, typer.Option(help="With --below: time between two looks.")] = "15m",
    for_: Annotated[
        str,
        typer.Option(
            "--for", help="With --below: give up after this time: 12h.", show_default="never"
        ),
    ] = "",
    no_fetch: Annotated[
        bool,
        typer.Option(
            "--no-fetch", help="With --below: another process fetches the prices before each look."
        ),
    ] = False,
    webhook: Annotated[
        str,
        typer.Option(
            help="With --below: address to post to, or $NAME of a variable that holds the address."
        ),
    ] = "",
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="With --below: keep watching, and report each time an offer appears."
        ),
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Rank the cheapest machines that fit, across the clouds, regions and zones whose prices are
    known.

    The price per useful hour includes what evictions cost. Estimated prices are marked: the
    on-demand price minus the saving that the cloud publishes. Until you fetch a cloud's prices,
    those of its GPUs are from lists that come with spotctl, and have the date of the list. Clouds
    whose prices are missing, or older than a week, are named first.

    With --below, this command fetches prices until an offer is below the limit; then it prints the
    offers, posts to a webhook, and exits. With --keep, it keeps watching and sends a message
    whenever offers appear after a look without any.

    Exit codes: 3 if no offer fits, or none was below the limit within --for.

    Example: spotctl prices best --gpu A100:8

    Example: spotctl prices best --gpu A100:8 --below 1.25 && spotctl launch job.yaml
    """
    from pricing_data.library import STALE
    from pricing_data.store.facts import LOST
    from spotctl.lab.best import offers as analysis, results
    from spotctl.show.columns import as_json
    from spotctl.show.prices.price_answers import lost_remarks
    from spotctl.show.terminal import fetch_command, freshness_remarks

    session: Session = context.obj
    wish = _wish(session, selection(glob, cloud, region, type_, vcpus=vcpus), gpu, memory, os_)
    sort = sort or ("gpu" if gpu else "price")
    if below is not None:
        check_regions("best", region or ())
        _check_webhook(webhook)
        watcher = _PriceWatcher(
            session,
            wish,
            results.PriceCondition(sort, below),
            lost,
            parse_duration(max_age or "36h"),
            webhook,
            json_,
        )
        return _watch(watcher, every, for_, fetches=not no_fetch, keeps=keep)
    if for_ or webhook or keep or no_fetch:
        raise BadRequest("best: --for, --no-fetch, --webhook and --keep belong to --below")

    now = wall_us()
    oldest = parse_duration(max_age) if max_age else STALE
    offers = _offers_that_fit(session, wish, lost)
    current = [
        offer
        for offer in offers
        if offer.is_current(now, oldest) or (offer.shipped and not max_age)
    ]

    shown = analysis.ranked(current, sort)[:limit]
    clouds = analysis.cloud_prices(session.library, wish, offers, now)
    removed_by = None if current else analysis.last_filter(session.library, wish)
    if not current and removed_by is None:
        removed_by = f"--max-age {max_age or age(oldest / SECOND)}", len(offers)

    if json_:
        answer = {
            "offers": shown,
            "clouds": clouds,
            "fetch": fetch_command(clouds, now, region or ()),
            "removed_by": removed_by,
            "lost": session.library.store.facts(LOST),
        }
        session.answer_json(as_json(results.BEST, answer, now))
        return NOT_IN_TIME if removed_by else DONE

    session.remark(
        *freshness_remarks(clouds, now, region or ()),
        *lost_remarks(session.library.store.facts(LOST)),
    )
    if len(offers) > len(current):
        session.remark(
            f"left out: {counted(len(offers) - len(current), 'offer')} with prices older than "
            f"{age(oldest / SECOND)} (update: spotctl prices fetch; or use --max-age)"
        )

    if removed_by:
        option, before = removed_by
        left = f"{counted(before, 'market')} before it" if before else "no market is known"
        session.remark(f"no offer fits: {option} leaves none ({left})")
        return NOT_IN_TIME

    session.out.print(results.offers_table(shown, now, session.out.width))
    session.remark(
        *analysis.on_demand_only(session.library, wish, offers), *results.shipped_machines(shown)
    )
    return DONE


def _wish(session: Session, chosen: Selection, gpu: str, memory: str, os_: str) -> MachineWish:
    """The machines that the options ask for."""
    from spotctl.lab.best.offers import MachineWish, check_gpu

    name, _, count = gpu.partition(":")
    wish = MachineWish(
        chosen,
        name,
        number_range("--gpu", count) if count else (0, inf),
        number_range("--memory", memory) if memory else (0, inf),
        operating_system(os_),
    )

    check_gpu(wish, session.library.catalog)
    return wish


def _offers_that_fit(session: Session, wish: MachineWish, lost: str) -> list[RankedOffer]:
    """All offers that fit a wish, old ones too; `lost` is what an eviction costs."""
    from spotctl.clouds import wiring
    from spotctl.lab.best.offers import offers

    return offers(wiring.library(session.settings), wish, parse_duration(lost) / HOUR)


def _watch(watcher: _PriceWatcher, every: str, for_: str, *, fetches: bool, keeps: bool) -> int:
    """Looks again and again; returns the exit code."""
    pause = parse_duration(every)
    end = wall_us() + parse_duration(for_, zero=True) if for_ else None
    while True:
        if fetches:
            watcher.fetch()
        if watcher.look() and not keeps:
            return FAILED if watcher.undelivered else DONE
        if end is not None and wall_us() + pause > end:
            if watcher.undelivered:
                return FAILED
            return DONE if watcher.has_held else watcher.give_up()
        time.sleep(pause / 1e6)


def _check_webhook(address: str) -> None:
    """Refuses, before the wait begins, an address to which no message could be posted."""
    from spotctl.files.job.forms import WEBHOOK

    try:
        if address:
            WEBHOOK.read(address)
    except ValueError:
        # The address is a secret: it is all that a sender needs.
        raise BadRequest(f"--webhook is not {WEBHOOK.expected}") from None

    if address.startswith("$") and not os.environ.get(address[1:]):
        raise BadRequest(f"--webhook {address}: {address[1:]} is not in the environment")


@dataclass
class _PriceWatcher:
    session: Session
    wish: MachineWish
    condition: PriceCondition
    lost: str
    max_age: int
    webhook: str
    json: bool
    has_held: bool = False
    undelivered: bool = False
    _holds: bool = False
    _said: set[str] = field(default_factory=set)

    def fetch(self) -> None:
        """Fetches spot prices of the machines that fit; what fails is named once, because it may
        work next time.
        """
        from spotctl.clouds import wiring
        from spotctl.run.start.live_markets import fetch_spot_prices

        settings = self.session.settings
        chosen = self.wish.selection
        types = self.wish.selection.types

        if self.wish.gpu and not types:
            known = wiring.library(settings).catalog.types
            types = tuple(
                dict.fromkeys(machine.name for machine in known if self.wish.fits(machine))
            )

        reports = fetch_spot_prices(settings, chosen.clouds, chosen.regions, types, (self.wish.os,))
        if not reports:
            raise BadRequest(f"best: no such region in {', '.join(chosen.clouds) or 'any cloud'}")

        failures = dict.fromkeys(
            f"spotctl: {report.failure}" for report in reports if report.failure is not None
        )
        new = [line for line in failures if line not in self._said]
        self._said.update(new)
        self.session.remark(*new)

    def look(self) -> bool:
        """Whether the condition holds now; reports the offers that meet it if it did not hold at
        the last look.
        """
        now = wall_us()
        offers = _offers_that_fit(self.session, self.wish, self.lost)
        # Synthetic prices buy nothing, and waiting does not change them.
        real = [offer for offer in offers if not offer.market.is_synthetic]
        met = self.condition.met_by(offer for offer in real if offer.is_current(now, self.max_age))
        is_new = bool(met) and not self._holds
        self._holds = bool(met)
        self.has_held |= self._holds
        if not is_new:
            return self._holds

        from spotctl.lab.best.results import WATCH, offers_table, price_message
        from spotctl.run.notify import post
        from spotctl.show.columns import as_json

        if self.json:
            answer = {"holds": True, "condition": self.condition.text, "offers": met}
            self.session.answer_json(as_json(WATCH, answer, now))
        else:
            self.session.out.print(offers_table(met, now, self.session.out.width))

        if self.webhook:
            delivery = post(price_message(self.condition, met, now), self.webhook)
            self.undelivered |= bool(delivery.failure)
            self.session.remark(delivery.text)

        return self._holds

    def give_up(self) -> int:
        """Reports that the condition never held in the time allowed; returns the exit code."""
        if self.json:
            self.session.answer_json(
                {"holds": False, "condition": self.condition.text, "offers": []}
            )
        else:
            self.session.remark(f"no offer was {self.condition.text} in that time")
        return NOT_IN_TIME
