"""Random fault schedules in virtual time, each from a seed, and the invariants that must always
hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import cast

import numpy as np

from agileml.core.events import CheckpointRules, ControllerSettings, NodeLost
from agileml.engines.sim.fleet import Simulation
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.params.commit import CommitRule, Declarations, name_of
from agileml.params.layout import Layout, Params
from agileml.params.view import CacheView, ParamCache
from agileml.policies.stage import LearnedStage, StageByRatio, Thresholds
from agileml.policies.stragglers import Stragglers
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Broken, Drained, PartitionProgress, Saved, WorkDone
from agileml.reference import iterate, model_digest, replay
from agileml.roles.node import JobSettings
from agileml.runtime.results import Result, model_of
from agileml.slowdowns import PowerLaw, SlowWorker
from agileml.trainer import Trainer, loss_of, sample_of, shards_of
from agileml.work import FINGERPRINT_MASK, Accepted
from tests.agileml.targets import (
    AT_START,
    EVENTS,
    FROM_THE_START,
    ONCE,
    PHASES,
    STAGES,
    START_UP,
    Target,
    Way,
    phase_of,
    target_of,
    way_to,
)
from tests.agileml.toys import Decades
from tests.agileml.watch import Trigger, Watch

CLOCKS = 6
SAMPLE = 16
"""Items in the loss sample: one of each shard."""

STOPPED_AT = 3
"""The clock after which a job without a clock limit is stopped."""

MAX_PROVOCATIONS = 20
"""How often a schedule with a target tries to provoke its message."""

SECOND_EVENT = 0.3
"""Probability of a second event soon after the target, before the first one is handled."""

LEARNING = 0.4
"""Probability that a job without a target learns its stage, as fast as possible, instead of using
the ratio."""

PARTITIONS = 8
THRESHOLDS = Thresholds(second=1, third=3)
HASTY = LearnedStage(THRESHOLDS, skipped=0, needed=1, gain=0.0, relief=0.0)
TOLERANCE = 1e-6


Kind = Callable[[], Trainer]
"""One of the toys, or a function that makes a trainer with 16 shards."""


def small(kind: Kind) -> Trainer:
    """The smallest useful job: 16 shards of two chunks each, of the toys with updates over six
    decades.
    """
    if isinstance(kind, type) and issubclass(kind, Decades):
        toy = kind(lengths=(2,) * 16, chunk=1)
        # About half of them change in a clock.
        toy.rows = 160
        return toy
    return cast("Trainer", kind())


@cache
def undisturbed(kind: Kind, deterministic: bool) -> Callable[[int], Params]:
    """The model of the reference run after a clock."""
    run = iterate(small(kind), seed=0, deterministic=deterministic, partitions=PARTITIONS)
    models: list[Params] = []

    def model(clock: int) -> Params:
        missing = islice(run, max(0, clock + 1 - len(models)))
        models.extend(
            {name: values.copy() for name, values in params.items()} for _, params, _ in missing
        )
        return models[clock]

    return model


def undisturbed_loss(kind: Kind, clock: int) -> float:
    """The loss of the reference run's model after a clock, without rounding."""
    trainer, model = small(kind), undisturbed(kind, True)(clock)
    cache = ParamCache(Layout.cut(model, 1))
    cache.fill(0, cache.layout.state_of(0, model), clock)
    reader = CacheView(cache, name_of(trainer))
    pieces = [piece for piece in sample_of(shards_of(trainer), SAMPLE) if len(piece)]
    total = sum(loss_of(trainer, reader, [piece], clock) * len(piece) for piece in pieces)
    return total / sum(map(len, pieces))


@dataclass
class Schedule:
    """One seed: a footprint, a network, and the faults. `target` is what the seed aims at.

    `then` is a second event soon after the target, and the kind of message that it follows; None:
    any.
    """

    seed: int
    kind: Kind = Decades
    slack: int | None = 0
    deterministic: bool = True
    target: Target | None = None
    then: tuple[str, str | None] | None = None
    machines: Machines | None = None
    learning: bool = False
    frame_bytes: int = JobSettings().frame_bytes
    stragglers: Stragglers = field(default_factory=Stragglers)
    met: set[Target] = field(default_factory=set)
    watch: Watch = field(default_factory=Watch)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        if self.target is None:
            self.target = target_of(self.seed)
            self.learning = self.learning or (
                self.target is None and self._chance.random() < LEARNING
            )
            self.then = (
                (self._chance.choice(EVENTS), None)
                if self._chance.random() < SECOND_EVENT
                else None
            )
        self.watch.same_in_all_epochs = self.deterministic and self.slack == 0
        if self.watch.same_in_all_epochs and not self.leaves_out:
            self.watch.model = undisturbed(self.kind, self.deterministic)

    @property
    def leaves_out(self) -> bool:
        """Whether clocks end without late work."""
        return self.stragglers.wait_policy is not None

    def run(self) -> tuple[Simulation, Result]:
        """Runs the job to its end and compares the model with the reference."""
        simulation = self._simulation()
        for event in self._chance.choices(
            EVENTS, k=self._chance.choice([0, 0, 0, 1] if self.target else [0, 1, 2, 3])
        ):
            self.watch.triggers.append(
                Trigger(partial(self._strike, event), self._chance.randrange(1, 900))
            )
        if self.target is not None:
            self._aim(self.target)
        self._disturb(simulation)
        result = simulation.run()
        self._check(simulation, result)
        return simulation, result

    def _simulation(self) -> Simulation:
        chance, target = self._chance, self.target
        way = way_to(target) if target else None
        self._footprint = chance.choice(
            way.start[target.stage] if target and way else AT_START[chance.choice(STAGES)]
        )
        limited = target.kind == "Limit" if target else chance.random() < 0.1
        saves = target is not None and target.kind == "Saved"
        reliable, transient = self._footprint
        settings = ControllerSettings(
            reliable,
            transient,
            clocks=1000 if limited else CLOCKS,
            policy=HASTY if self.learning else StageByRatio(THRESHOLDS),
            checkpoints=CheckpointRules(chance.choice([1, 2] if saves else [0, 1, 1, 2])),
            stop=lambda iteration: limited and iteration.clock >= STOPPED_AT,
            loss_sample=SAMPLE,
            stragglers=self.stragglers,
        )
        job = JobSettings(
            partitions=PARTITIONS,
            deterministic=self.deterministic,
            slack=self.slack,
            loss_sample=SAMPLE,
            keeps=chance.choice([1, 2, 8]),
            frame_bytes=self.frame_bytes,
            stragglers=self.stragglers,
        )
        machines = self.machines or Machines(
            seconds_per_item=chance.choice([0.001, 0.01]),
            loading=chance.choice([0.005, 0.05]),
            detection=chance.choice([0.0005, 0.03]),
            saving=chance.choice([0.0, 0.002, 0.05]),
            network=Network(
                jitter=chance.choice([0.0001, 0.002, 0.01]), skew=chance.choice([0.0, 1.5])
            ),
        )
        slowdowns = (SlowWorker(0.2, 8.0), PowerLaw(4.0)) if self.stragglers != Stragglers() else ()
        simulation = Simulation(
            small(self.kind), settings, job, machines, self.seed, self.watch, slowdowns
        )
        for number in range(reliable + transient):
            simulation.join(
                reliable=number < reliable,
                loading=machines.loading * chance.choice([0.1, 1.0, 1.0, 2.0]),
            )
        return simulation

    def _disturb(self, simulation: Simulation) -> None:
        """Events at any time before the first clock, and messages in which a node speaks for
        another.
        """
        chance = self._chance
        early = chance.choice([0, 0, 0, 1, 2, 3]) if self.target is None else 0
        for _ in range(early):
            when = chance.uniform(0, 2.5 * simulation.machines.loading)
            simulation.time.at(when, lambda: self._act(simulation))
        for _ in range(chance.choice([0, 0, 1, 3])):
            self.watch.triggers.append(Trigger(self._forge, chance.randrange(1, 600)))

    def _act(self, simulation: Simulation) -> None:
        self._inject(simulation, self._chance.choice(EVENTS))

    def _forge(self, simulation: Simulation, _: str) -> bool:
        """A node says something in the name of another, which must have no effect."""
        names = sorted(simulation.nodes)
        if len(names) < 2:
            return False
        forger, victim = self._chance.sample(names, 2)
        epoch, stable = simulation.controller.epoch, simulation.controller.clocks.stable
        forged = self._chance.choice(
            [
                Broken(victim, "this was forged"),
                Drained(victim, epoch),
                NodeLost(victim, "this was forged"),
                PartitionProgress(victim, epoch, 0, stable + 1, backup=False),
                Saved(victim, epoch, 0, stable),
                WorkDone(victim, epoch, stable + 1, 1, 0.0, 0, 0.0, 0),
            ]
        )
        simulation.messages.arrive(forger, CONTROLLER, forged)
        return True

    # -- what happens ------------------------------------------------------------------------------

    def _aim(self, target: Target) -> None:
        """Schedules the event right after its message, and provokes that message."""
        strike = partial(self._strike_and_follow, target.event)
        way = way_to(target)
        rarely = target.kind in ONCE or (way.causes and target.kind not in FROM_THE_START)
        after = 0 if rarely else self._chance.choice([0, 0, 40, 200])
        self.watch.triggers.append(Trigger(strike, after, target.stage, target.kind))
        first = 0 if target.stage == START_UP else self._chance.randrange(20, 300)
        self._provoke(target, way, first, MAX_PROVOCATIONS)

    def _provoke(self, target: Target, way: Way, after: int, left: int) -> None:
        """Repeats events that may lead to the target until it is hit."""

        def act(simulation: Simulation, _: str) -> bool:
            if way.settled and not simulation.controller.clocks.stable:
                return False
            if target not in self.met and left:
                if not self._restore(simulation) and way.causes:
                    self._inject(simulation, self._chance.choice(way.causes))
                apart = way.apart * self._chance.choice([5, 10, 20, 40])
                self._provoke(target, way, simulation.messages.delivered + apart, left - 1)
            return True

        self.watch.triggers.append(Trigger(act, after, kind=way.at))

    def _restore(self, simulation: Simulation) -> bool:
        """Restores the initial footprint, and with it the stage; False if nothing has changed."""
        changed = False
        for kind, wanted in zip("rt", self._footprint, strict=True):
            here = _unwarned(simulation, kind)
            changed |= len(here) != wanted
            for _ in range(wanted - len(here)):
                simulation.join(reliable=kind == "r")
            for name in here[wanted:]:
                simulation.warn(name, 1.0)
        return changed

    def _strike_and_follow(self, event: str, simulation: Simulation, kind: str) -> bool:
        struck = self._strike(event, simulation, kind)
        if struck and self.then is not None:
            event, follows = self.then
            after = simulation.messages.delivered + (
                0 if follows else self._chance.randrange(1, 40)
            )
            self.watch.triggers.append(Trigger(partial(self._strike, event), after, kind=follows))
        return struck

    def _strike(self, event: str, simulation: Simulation, kind: str) -> bool:
        stage = phase_of(simulation.controller)
        struck = self._inject(simulation, event)
        if struck:
            self.met.add(Target(stage, event, kind))
            self.log.append(
                f"{simulation.messages.delivered}: {event} after {kind} in {PHASES[stage]}"
            )
        return struck

    def _inject(self, simulation: Simulation, event: str) -> bool:
        """Makes an event happen now; False if no node can be affected."""
        chance = self._chance
        together = chance.sample(EVENTS[:-1], 2) if event == "two at once" else event.split("+")
        if len(together) > 1:
            struck = [self._inject(simulation, one) for one in together]
            return all(struck)
        what, _, whom = event.partition(" ")
        if what == "join":
            for _ in range(1 if whom else chance.choice([1, 2, 4])):
                simulation.join(reliable=bool(whom))
            return True
        if whom == "controller":
            if simulation.away:
                return False
            away = chance.choice([0.0, 0.01, 0.2])
            simulation.away = True
            simulation.messages.lose(CONTROLLER)
            simulation.time.later(away, simulation.take_over)
            return True
        seconds = chance.choice([0.003, 0.03, 1.0])
        if whom == "joining":
            self._strike_joining(simulation, what, seconds)
            return True
        chosen = self._chosen(simulation, whom, warned=what != "warn")
        for name in chosen:
            self._remove(simulation, name, what, seconds)
        return bool(chosen)

    def _remove(self, simulation: Simulation, name: str, what: str, seconds: float) -> None:
        """Warns, suspects or kills a node. Without reliable nodes the job waits for one."""
        chance = self._chance
        if what == "warn":
            simulation.warn(name, seconds)
        elif what == "suspect":
            if name in simulation.nodes:
                simulation._control(NodeLost(name, "it was silent"))
        else:
            simulation.kill(name, lambda _: chance.random() < 0.3)
        if name.startswith("r"):
            simulation.time.at(
                simulation.time.now + chance.choice([0.0, 0.2]), lambda: _join_reliable(simulation)
            )

    def _strike_joining(self, simulation: Simulation, what: str, seconds: float) -> None:
        """Starts a machine, and warns or kills it before its node has loaded, or even before it is
        heard of.
        """
        chance = self._chance
        name = simulation.join(reliable=chance.random() < 0.3)
        if name.startswith("r"):
            # It may have taken the place of another one by then.
            simulation.time.at(simulation.time.now + 0.2, lambda: _join_reliable(simulation))
        act = (
            partial(simulation.warn, name, seconds)
            if what == "warn"
            else partial(simulation.kill, name)
        )
        simulation.time.at(
            simulation.time.now
            + chance.choice([0.0, 0.0005, simulation.machines.loading * chance.random()]),
            act,
        )

    def _chosen(self, simulation: Simulation, whom: str, *, warned: bool) -> list[str]:
        kinds = {"reliable": "r", "everything": "rt"}.get(whom, "t")
        names = sorted(simulation.nodes) if warned else _unwarned(simulation, "rt")
        names = [name for name in names if name[0] in kinds]
        share = {"half": -(-len(names) // 2), "all": len(names), "everything": len(names)}.get(
            whom, 1
        )
        return self._chance.sample(names, min(share, len(names)))

    # -- the result --------------------------------------------------------------------------------

    def _check(self, simulation: Simulation, result: Result) -> None:
        self.watch.end(simulation)
        tallies = {version.tally for version in result.versions}
        assert len(tallies) == 1, "partitions differ in what they contain"
        tally = tallies.pop()
        log = {one.clock: Accepted(one.clock, one.accepted) for one in simulation.log}
        accepted = [log[clock] for clock in range(1, result.clock + 1)]
        if not self.leaves_out:
            assert accepted == [simulation.plan.accept_all(one.clock) for one in accepted]
        assert tally.chunks == sum(one.chunks for one in accepted), "updates were lost or repeated"
        fingerprint = (
            sum(self._dealt(simulation, one).fingerprint for one in accepted) & FINGERPRINT_MASK
        )
        assert tally.fingerprint == fingerprint, (
            "an update is missing and another was applied twice"
        )
        if self.slack != 0:
            return
        rule = CommitRule(simulation.layout, Declarations.of(simulation.trainer))
        model = model_of(rule.layout, result.versions)
        if self.leaves_out:
            self._check_replayed(model, accepted)
            return
        expected = undisturbed(self.kind, self.deterministic)(result.clock)
        if self.deterministic:
            assert model_digest(model) == model_digest(expected), (
                "the model is not that of the undisturbed run"
            )
            loss = undisturbed_loss(self.kind, result.clock)
            assert result.loss == loss, "the loss is not that of the model"
            return
        for name, values in expected.items():
            apart = np.abs(model[name] - values).max() / np.abs(values).max()
            assert apart <= TOLERANCE, f"{name} is {apart:.1e} from that of the undisturbed run"

    def _dealt(self, simulation: Simulation, accepted: Accepted) -> Accepted:
        """The chunks of a logged decision, by the numbers under which they were dealt out."""
        if not self.leaves_out:
            return accepted
        plan, clock = simulation.plan.rotating(), accepted.clock
        places = {plan.shard_at(place, clock): place for place in range(len(plan.lengths))}
        return Accepted(
            clock, tuple((places[shard], first, last) for shard, first, last in accepted.covers)
        )

    def _check_replayed(self, model: Params, log: list[Accepted]) -> None:
        """One process that repeats the logged decisions gets the same model."""
        again = replay(small(self.kind), log, seed=0, partitions=PARTITIONS)
        assert model_digest(model) == model_digest(again), "the log leads to another model"


def _unwarned(simulation: Simulation, kinds: str) -> list[str]:
    return (
        sorted(simulation.nodes.keys() - simulation.warned)
        if kinds == "rt"
        else [name for name in _unwarned(simulation, "rt") if name[0] == kinds]
    )


def _join_reliable(simulation: Simulation) -> None:
    simulation.join(reliable=True)
