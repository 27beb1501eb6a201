"""The project's own strategy in the replay: decides from what the field shows, then tries what was decided."""

from bidbrain.backtest.regions.replay import Field, Whereabouts
from bidbrain.strategies.regions import START, RegionsSituation, RegionsStrategy, Running
from bidbrain.strategies.regions_knowledge import Known
from pricing_data.units import HOUR


class ChosenRegions:
    """One job under `regions`."""

    bills_last_step = False

    def __init__(self) -> None:
        self._strategy = RegionsStrategy()
        self._known: Known | None = None
        self._held: Whereabouts | None = None

    def step(self, field: Field) -> None:
        now = field.now * field.gap / HOUR
        known = self._known or Known.nothing(field.regions)
        if self._held is not None and self._held.spot:
            known = known.observed(self._held.zone, now, up=field.machine is not None)
        refused = frozenset[int]()
        while True:
            decision = self._strategy.decide(_situation(field, known, refused))
            chosen = decision.chosen
            if chosen.action != START or chosen.zone is None:
                break
            if not chosen.spot:
                field.start_on_demand(chosen.zone)
                break
            started = field.start_spot(chosen.zone)
            known = known.observed(chosen.zone, now, up=started)
            if started:
                break
            refused |= {chosen.zone}
        self._held = field.machine
        for zone in self._strategy.probes(_situation(field, known, refused)):
            known = known.observed(zone, now, up=field.probe(zone))
        self._known = known


def _situation(field: Field, known: Known, refused: frozenset[int]) -> RegionsSituation:
    held, machines = field.machine, field.job.machines
    running = None if held is None else Running(held.zone, held.spot, field.delay_left / HOUR)
    return RegionsSituation(
        now=field.now * field.gap / HOUR,
        regions=field.regions,
        spot=field.spot * machines,
        on_demand=field.on_demand * machines,
        moving=field.moving,
        known=known,
        work=field.work_left / HOUR,
        left=field.steps_left * field.gap / HOUR,
        delay=field.longest_delay / HOUR,
        step=field.gap / HOUR,
        running=running,
        home=field.home,
        refused=refused,
        share=field.share,
        probe_hours=field.probe_hours,
    )
