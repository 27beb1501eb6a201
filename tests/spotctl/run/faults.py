"""Clouds that refuse, and what must hold of a run at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pricing_data.units import MINUTE
from spotctl.clouds.errors import PartlyListed, Unanswered
from spotctl.clouds.provider import Machine, MachineRequest
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.service import Runner, RunRules
from tests.spotctl.clouds.fake import Call, FakeProvider, Fault
from tests.spotctl.run.worlds import MARKETS, RUN, START, TARIFF, Life, MemoryLog, environment


def for_market(number: int, fault: Fault) -> Callable[[Call], Fault | None]:
    def meets(call: Call) -> Fault | None:
        return (
            fault
            if isinstance(call.asked, MachineRequest) and call.asked.market == MARKETS[number]
            else None
        )

    return meets


def always(name: str, fault: Fault) -> Callable[[Call], Fault | None]:
    return lambda call: fault if call.name == name else None


def clean(one: Life) -> None:
    assert not one.world.running
    assert one.state().machines.keys() == {machine.id for machine in one.cloud.everything}


class Split(FakeProvider):
    """A cloud whose machines in part `fake-0` cannot be listed from 3 minutes on, until
    `answers_at`.
    """

    answers_at = 0

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        found = super().list(tags)
        if self.time < START + 3 * MINUTE or self.time > self.answers_at:
            return found
        raise PartlyListed(
            Unanswered("down"), [one for one in found if one.id != "fake-0"], ("fake-0",)
        )


def provider_prices(one: Life) -> None:
    """Takes prices from the provider, which may fail."""
    one.tariff = Tariff(TARIFF.rule, lambda market, now: one.cloud.prices(market, START, now))


def begun(one: Life, **changes: object) -> Runner:
    """The runner of a run that has just begun, in an environment with `changes`."""
    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(lambda: (one.strategy, one.terms), one.tariff, one.limits)
    here = replace(environment(one.cloud), **changes)  # type: ignore[arg-type]
    return Runner(journal, here, one.work, rules, one.retries)
