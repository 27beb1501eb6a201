"""Random fault schedules in virtual time, and what must hold whatever happens.

`python -m tests.agileml.faults 0 5000` runs 5,000 of them and prints which (stage, event, message boundary) they met.
A schedule is a function of its seed: `python -m tests.agileml.faults 17 18` runs number 17 again, and nothing else.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256

import numpy as np

from agileml.actions import CONTROLLER
from agileml.commit import CommitRule
from agileml.core.events import ControllerSettings
from agileml.core.placement import Thresholds
from agileml.core.standing import Mode
from agileml.engines.network import Network
from agileml.engines.results import model_of
from agileml.engines.sim import Machines, Outcome, Simulation
from agileml.layout import Params
from agileml.node import JobSettings, Node
from agileml.partitions import BackedUp
from agileml.reference import model_digest, run
from agileml.trainer import Declarations
from tests.agileml import toys
from tests.agileml.targets import (
    AT_START,
    EVENTS,
    KINDS,
    NEVER_SENT,
    ONCE,
    STAGES,
    Target,
    Way,
    target_of,
    targets,
    way_to,
)
from tests.agileml.toys import Decades

CLOCKS = 6
STOPPED_AT = 3
"""The clock after which a job is stopped that is not told at the start when to end."""

MOST_STIRS = 20
"""How often a schedule that aims at something tries to bring its moment about."""

PARTITIONS = 8
THRESHOLDS = Thresholds(second=1, third=3)
TOLERANCE = 1e-6


def small(kind: type[Decades]) -> Decades:
    """The least that a fault can hurt: 16 shards of two chunks each, updates over six decades."""
    trainer = kind(lengths=(2,) * 16, chunk=1)
    # A clock leaves about half of them as they are.
    trainer.rows = 160
    return trainer


@cache
def undisturbed(kind: str, clocks: int, deterministic: bool) -> Params:
    """The model of the run that nothing befalls; `kind` is one of the toys."""
    trainer = small(getattr(toys, kind))
    return run(trainer, clocks, seed=0, deterministic=deterministic, partitions=PARTITIONS)


@dataclass
class Trigger:
    """Something to happen right after a delivery: of any message, or of one kind in one stage; not before so many.

    `act` says whether it could happen; if not, the trigger waits on.
    """

    act: Callable[[Simulation, str], bool]
    after: int
    stage: int | None = None
    kind: str | None = None

    def fits(self, stage: int, kind: str, delivered: int) -> bool:
        """Whether this is the moment."""
        return delivered >= self.after and self.stage in (None, stage) and self.kind in (None, kind)


@dataclass
class Watch:
    """Looks at everything that happens, checks what must always hold, and pulls triggers."""

    triggers: list[Trigger] = field(default_factory=list)
    kinds: set[tuple[int, str]] = field(default_factory=set)
    digest: str = ""
    _stable: dict[int, int] = field(default_factory=dict)
    _reliable: set[str] = field(default_factory=set)
    _backups: dict[tuple[int, str, int], tuple[BackedUp, int]] = field(default_factory=dict)
    _seen: int = 0

    def __call__(self, simulation: Simulation) -> None:
        """Something has happened; only what was delivered counts."""
        if simulation.delivered == self._seen or simulation.last_message is None:
            return
        self._seen = simulation.delivered
        sender, receiver, message = simulation.last_message
        kind, stage = type(message).__name__, simulation.controller.stage
        said = f"{self.digest} {simulation.now!r} {sender} {receiver} {kind}"
        self.digest = sha256(said.encode()).hexdigest()
        self._check(simulation, receiver)
        if not self._arrived(simulation, receiver, kind):
            return
        self.kinds.add((stage, kind))
        for trigger in list(self.triggers):
            if trigger.fits(stage, kind, self._seen) and trigger.act(simulation, kind):
                self.triggers.remove(trigger)

    @staticmethod
    def _arrived(simulation: Simulation, receiver: str, kind: str) -> bool:
        """Whether somebody was there to receive it; who is told to leave is gone now."""
        if receiver == CONTROLLER:
            return not simulation.away
        return receiver in simulation.nodes or kind == "Leave"

    def _check(self, simulation: Simulation, receiver: str) -> None:
        controller, node = simulation.controller, simulation.nodes.get(receiver)
        self._reliable.update(name for name in simulation.nodes if name.startswith("r"))
        if controller.mode is Mode.RUNNING:
            self._check_stable(simulation)
            table = controller.table
            for name in {*table.owners, *table.workers, *table.backups} - {""}:
                assert controller.members.alive(name), f"{name} is in the table, but not in the job"
        if node is not None:
            self._check_node(simulation, node)

    def _check_stable(self, simulation: Simulation) -> None:
        """What is stable stays so in an epoch, and for ever as long as no reliable node goes."""
        epoch, stable = simulation.controller.epoch, simulation.controller.stable
        if self._reliable <= simulation.nodes.keys() - simulation.warned:
            epoch = 0
        assert stable >= self._stable.get(epoch, 0), "what was stable no longer is"
        self._stable[epoch] = stable

    def _check_node(self, simulation: Simulation, node: Node) -> None:
        for other in simulation.nodes.values():
            if other is node or other.epoch != node.epoch:
                continue
            assert not node.server.served.keys() & other.server.served.keys(), "a partition has two owners"
            if node.worker.epoch == other.worker.epoch:
                assert not node.worker.shards.keys() & other.worker.shards.keys(), "a shard has two workers"
        for partition, copy in node.server.copies.items():
            key, newest = (node.epoch, node.name, partition), max(copy.versions, default=-1)
            before, reached = self._backups.get(key, (copy, -1))
            assert before is not copy or newest >= reached, "a backup's clock went back"
            self._backups[key] = (copy, newest)


@dataclass
class Schedule:
    """One seed: a footprint, a network, and what befalls the job. `target` is what the seed aims at.

    `then` follows on its heels: an event, and the kind of message after which it comes.
    """

    seed: int
    kind: type[Decades] = Decades
    slack: int | None = 0
    deterministic: bool = True
    target: Target | None = None
    then: tuple[str, str] | None = None
    machines: Machines | None = None
    met: set[Target] = field(default_factory=set)
    watch: Watch = field(default_factory=Watch)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target = self.target or target_of(self.seed)
        self._chance = random.Random(self.seed)

    def run(self) -> Outcome:
        """Runs it to the end and holds the model against the undisturbed one."""
        simulation = self._simulation()
        for event in self._chance.choices(EVENTS, k=self._chance.choice([0, 0, 0, 1] if self.target else [0, 1, 2, 3])):
            self.watch.triggers.append(Trigger(partial(self._strike, event), self._chance.randrange(1, 900)))
        if self.target is not None:
            self._aim(self.target)
        outcome = simulation.run()
        self._hold(simulation, outcome)
        return outcome

    def _simulation(self) -> Simulation:
        chance, target = self._chance, self.target
        way = way_to(target) if target else None
        stage = target.stage if target else chance.choice(STAGES)
        self._footprint = chance.choice((way.start if way else AT_START)[stage])
        limited = target.kind == "Limit" if target else chance.random() < 0.1
        saves = target is not None and target.kind == "Saved"
        reliable, transient = self._footprint
        settings = ControllerSettings(
            reliable,
            transient,
            clocks=1000 if limited else CLOCKS,
            thresholds=THRESHOLDS,
            checkpoint_every=chance.choice([1, 2] if saves else [0, 1, 2]),
            stop=lambda iteration: limited and iteration.clock >= STOPPED_AT,
        )
        job = JobSettings(
            partitions=PARTITIONS,
            deterministic=self.deterministic,
            slack=self.slack,
            loss_sample=0,
            keeps=chance.choice([1, 2, 8]),
        )
        machines = self.machines or Machines(
            seconds_per_item=chance.choice([0.001, 0.01]),
            loading=chance.choice([0.005, 0.05]),
            detection=chance.choice([0.0005, 0.03]),
            network=Network(jitter=chance.choice([0.0001, 0.002, 0.01]), skew=chance.choice([0.0, 1.5])),
        )
        simulation = Simulation(small(self.kind), settings, job, machines, self.seed, self.watch)
        for number in range(reliable + transient):
            simulation.join(reliable=number < reliable)
        return simulation

    # -- what happens ------------------------------------------------------------------------------------------------

    def _aim(self, target: Target) -> None:
        """Have the event happen as soon as its moment comes, and see that it comes."""
        strike = partial(self._strike_and_follow, target.event)
        after = 0 if target.kind in ONCE else self._chance.choice([0, 0, 40, 200])
        self.watch.triggers.append(Trigger(strike, after, target.stage, target.kind))
        way = way_to(target)
        if way is not None:
            self._stir(target, way, self._chance.randrange(20, 300), MOST_STIRS)

    def _stir(self, target: Target, way: Way, after: int, left: int) -> None:
        """As long as the target is not met, have something happen again and again that may lead there."""

        def act(simulation: Simulation, _: str) -> bool:
            if target not in self.met and left:
                if not self._restore(simulation):
                    self._befall(simulation, self._chance.choice(way.causes))
                apart = way.apart * self._chance.choice([5, 10, 20, 40])
                self._stir(target, way, simulation.delivered + apart, left - 1)
            return True

        self.watch.triggers.append(Trigger(act, after))

    def _restore(self, simulation: Simulation) -> bool:
        """Bring back the footprint of the start, so that the stage comes round again; False if it is there."""
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
            self.watch.triggers.append(Trigger(partial(self._strike, event), simulation.delivered, kind=follows))
        return struck

    def _strike(self, event: str, simulation: Simulation, kind: str) -> bool:
        stage = simulation.controller.stage
        struck = self._befall(simulation, event)
        if struck:
            self.met.add(Target(stage, event, kind))
            self.log.append(f"{simulation.delivered}: {event} after {kind} in stage {stage}")
        return struck

    def _befall(self, simulation: Simulation, event: str) -> bool:
        """Have something happen now; False if there is nobody whom it can befall."""
        chance = self._chance
        if event == "two at once":
            both = [self._befall(simulation, one) for one in chance.sample(EVENTS[:-1], 2)]
            return all(both)
        what, _, whom = event.partition(" ")
        if what == "join":
            for _ in range(1 if whom else chance.choice([1, 2, 4])):
                simulation.join(reliable=bool(whom))
            return True
        if whom == "controller":
            if simulation.away:
                return False
            simulation.kill_controller(chance.choice([0.0, 0.01, 0.2]))
            return True
        chosen = self._chosen(simulation, whom, warned=what == "kill")
        seconds = chance.choice([0.003, 0.03, 1.0])
        for name in chosen:
            if what == "warn":
                simulation.warn(name, seconds)
            else:
                simulation.kill(name, lambda _: chance.random() < 0.3)
            if name.startswith("r"):
                # A job without reliable nodes waits for one.
                simulation.at(simulation.now + chance.choice([0.0, 0.2]), lambda: _join_reliable(simulation))
        return bool(chosen)

    def _chosen(self, simulation: Simulation, whom: str, *, warned: bool) -> list[str]:
        kinds = {"reliable": "r", "everything": "rt"}.get(whom, "t")
        names = sorted(simulation.nodes) if warned else _unwarned(simulation, "rt")
        names = [name for name in names if name[0] in kinds]
        share = {"half": -(-len(names) // 2), "all": len(names), "everything": len(names)}.get(whom, 1)
        return self._chance.sample(names, min(share, len(names)))

    # -- what must have come of it -----------------------------------------------------------------------------------

    def _hold(self, simulation: Simulation, outcome: Outcome) -> None:
        tallies = {version.tally for version in outcome.versions}
        assert len(tallies) == 1, "partitions differ in what they contain"
        tally, clocks = tallies.pop(), range(1, outcome.clock + 1)
        assert tally.chunks == sum(map(simulation.plan.total, clocks)), "updates were lost or doubled"
        assert tally.fingerprint == simulation.plan.expected_fingerprint(clocks), "an update took another's place"
        if self.slack != 0:
            return
        rule = CommitRule(outcome.layout, Declarations.of(simulation.trainer))
        model = model_of(rule, outcome.versions)
        expected = undisturbed(self.kind.__name__, outcome.clock, self.deterministic)
        if self.deterministic:
            assert model_digest(model) == model_digest(expected), "the model is not that of the undisturbed run"
            return
        for name, values in expected.items():
            apart = np.abs(model[name] - values).max() / np.abs(values).max()
            assert apart <= TOLERANCE, f"{name} is {apart:.1e} from that of the undisturbed run"


def _unwarned(simulation: Simulation, kinds: str) -> list[str]:
    return (
        sorted(simulation.nodes.keys() - simulation.warned)
        if kinds == "rt"
        else [name for name in _unwarned(simulation, "rt") if name[0] == kinds]
    )


def _join_reliable(simulation: Simulation) -> None:
    simulation.join(reliable=True)


# -- the command -------------------------------------------------------------------------------------------------------


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints what was met and which failed."""
    met: Counter[Target] = Counter()
    kinds: set[tuple[int, str]] = set()
    failed: list[str] = []
    for seed in range(first, last):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:  # noqa: BLE001 - whatever a schedule brings to light is what is looked for
            failed.append(f"seed {seed}, {schedule.target}: {type(error).__name__}: {error}"[:400])
        met.update(schedule.met)
        kinds |= schedule.watch.kinds
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{seed - first + 1} schedules, {len(failed)} failed")
    _print_table(met)
    _print_sums(met, kinds)
    print(f"seeds {first} to {last - 1}: {last - first - len(failed)} ended with the undisturbed model")
    for line in failed:
        print(line)
    return 1 if failed else 0


def _print_table(met: Counter[Target]) -> None:
    print("times that an event came right after a message of a kind had been delivered, by stage")
    heads = [event.replace("kill ", "k.").replace("warn ", "w.").replace("reliable", "rel.") for event in EVENTS]
    for stage in STAGES:
        print(f"\nstage {stage:<9}" + "".join(f"{head:>13}" for head in heads))
        for kind in KINDS:
            print(f"{kind:<15}" + "".join(f"{met[Target(stage, event, kind)]:>13}" for event in EVENTS))


def _print_sums(met: Counter[Target], kinds: set[tuple[int, str]]) -> None:
    possible = targets()
    missing = [target for target in possible if target not in met]
    print(f"\n{len(possible) - len(missing)} of {len(possible)} (stage, event, boundary) that can occur were met")
    for kind, reason in NEVER_SENT.items():
        print(f"cannot occur: {kind}: {reason}")
    for target in missing:
        delivered = "" if (target.stage, target.kind) in kinds else " (no such message in this stage)"
        print(f"missing: {target.event} after {target.kind} in stage {target.stage}{delivered}")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
