"""`spotctl lab prices watch`: wait until a machine is cheap enough."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import parse_duration
from spotctl.cli.boundary import DONE, FAILED, NOT_IN_TIME
from spotctl.cli.options import CloudOption, GlobArgument, RegionOption, TypeOption, VcpusOption, check_regions
from spotctl.cli.prices.best import GpuOption, LostOption, MemoryOption, OsOption, offers_that_fit, wish_of
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.lab.best.offers import MachineWish, RankedOffer
    from spotctl.lab.best.results import PriceCondition


def watch(
    context: typer.Context,
    below: Annotated[float, typer.Option(help="Limit in US dollars (with --by eviction: a share, 0.05).")],
    glob: GlobArgument = "",
    by: Annotated[
        str, typer.Option(help="Figure: price, gpu, vcpu, useful or eviction.", show_default="gpu, else price")
    ] = "",
    gpu: GpuOption = "",
    vcpus: VcpusOption = "",
    memory: MemoryOption = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    os_: OsOption = "linux",
    lost: LostOption = "15m",
    max_age: Annotated[str, typer.Option(help="Only prices seen within this time.")] = "36h",
    every: Annotated[str, typer.Option(help="Time between two checks.")] = "15m",
    for_: Annotated[str, typer.Option("--for", help="Give up after this time: 12h.", show_default="never")] = "",
    fetch: Annotated[
        bool, typer.Option(help="Fetch spot prices before each check; without --fetch, another process must do so.")
    ] = True,
    webhook: Annotated[
        str, typer.Option(help="Address to post to, or $NAME of a variable that holds the address.")
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep watching, and report each time an offer appears.")] = False,
    json_: JsonOption = False,
) -> int:
    """Wait until a machine's price falls below a limit; then print the offers, post to a webhook, and exit.

    Offers are ranked like those of `prices best`. The exit code is 3 if none appears within --for. With --keep, spotctl
    keeps watching and sends a message whenever offers appear after a check without any.

    Example: spotctl lab prices watch --gpu A100:8 --below 1.25 && spotctl launch job.yaml
    """
    from spotctl.lab.best.results import PriceCondition

    session: Session = context.obj
    check_regions("watch", region or ())
    _check_webhook(webhook)
    watcher = _PriceWatcher(
        session,
        wish_of(session.library, glob, gpu, memory, os_, (cloud, region, type_, vcpus)),
        PriceCondition(by or ("gpu" if gpu else "price"), below),
        lost,
        parse_duration(max_age),
        webhook,
        json_,
    )
    pause = parse_duration(every)
    end = wall_us() + parse_duration(for_, zero=True) if for_ else None
    while True:
        if fetch:
            watcher.fetch()
        if watcher.look() and not keep:
            return FAILED if watcher.undelivered else DONE
        if end is not None and wall_us() + pause > end:
            return FAILED if watcher.undelivered else DONE if watcher.has_held else watcher.give_up()
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
        """Fetches spot prices of the machines that fit; what fails is named once, because it may work next time."""
        from spotctl.clouds import wiring
        from spotctl.run.start.fresh_prices import fetch_spot_prices

        settings, chosen, types = self.session.settings, self.wish.selection, self.wish.selection.types
        if self.wish.gpu and not types:
            known = wiring.library(settings).catalog.types
            types = tuple(dict.fromkeys(machine.name for machine in known if self.wish.fits(machine)))
        reports = fetch_spot_prices(settings, chosen.clouds, chosen.regions, types, (self.wish.os,))
        if not reports:
            raise BadRequest(f"watch: no such region in {', '.join(chosen.clouds) or 'any cloud'}")
        self._say_once(f"spotctl: {report.failure}" for report in reports if report.failure is not None)

    def look(self) -> bool:
        """Whether the condition holds now; reports the offers if it did not hold at the last look."""
        now = wall_us()
        offers = offers_that_fit(self.session.settings, self.wish, self.lost)
        # Synthetic prices buy nothing, and waiting does not change them.
        real = [offer for offer in offers if not offer.market.is_synthetic]
        met = self.condition.met_by(offer for offer in real if offer.is_current(now, self.max_age))
        if met and not self._holds:
            self._report(met, now)
        self._holds = bool(met)
        self.has_held |= self._holds
        return self._holds

    def give_up(self) -> int:
        """Reports that the condition never held in the time allowed; returns the exit code."""
        if self.json:
            self.session.answer_json({"holds": False, "condition": self.condition.text, "offers": []})
        else:
            self.session.remark(f"no offer was {self.condition.text} in that time")
        return NOT_IN_TIME

    def _report(self, met: Sequence[RankedOffer], now: int) -> None:
        """Reports offers that meet the condition."""
        from spotctl.lab.best.results import WATCH, offers_table, price_message
        from spotctl.run.notify.webhook import post
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

    def _say_once(self, lines: Iterable[str]) -> None:
        new = [line for line in dict.fromkeys(lines) if line not in self._said]
        self._said.update(new)
        self.session.remark(*new)
