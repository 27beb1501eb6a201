"""Compares the provider's list of machines with the log, and returns the events that the log lacks.
Pure.
"""

from collections.abc import Iterator, Sequence
from operator import mul

from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.clouds.boot import STAGES
from spotctl.clouds.provider import SAME_BID, EndReason, Machine, MachineState
from spotctl.home.installation import INTENT_TAG
from spotctl.log import events as ev
from spotctl.log.budget import LISTING_DELAY
from spotctl.log.events import Event
from spotctl.log.state import BROKE, EVICTED, LEASE_ENDED, NOT_LISTED, RunState

EVICTION = "eviction"
"""The kind of warning that the event log records."""

_CARDS_EVERY, _CARDS_CHANGE = MINUTE, 10
"""How often at most, and from how many points on, a change of a machine's graphics cards is noted:
the log is kept."""

_TRAFFIC_EVERY, _TRAFFIC_LEAST, _TRAFFIC_SHARE = MINUTE, 10_000_000, 50
"""How often at most a machine's traffic is noted, and from how many bytes more on: 10 MB, and a
50th of it."""

_SIGNS_EVERY = MINUTE // 2
"""How often at most a sign of life within a phase of a boot is noted."""

_REASONS = {
    EndReason.RETURNED: "returned",
    EndReason.EVICTED: EVICTED,
    EndReason.LEASE_ENDED: LEASE_ENDED,
    EndReason.FAILED: BROKE,
}


def news(
    state: RunState,
    machines: Sequence[Machine],
    now: int,
    source: str,
    unlisted: tuple[str, ...] = (),
) -> list[Event]:
    """Events about machines that are new to the log, now run, are warned, or are gone; `source`
    names the provider.

    Nothing is known of machines whose ids begin with one of `unlisted`.
    """
    # Machines with the run's tag that no logged answer names: the answer was lost.
    events = list[Event]()
    for machine in machines:
        intent = int(machine.tags.get(INTENT_TAG, "0"))
        # While the order is open it is repeated, and its answer names all its machines; not so when
        # the run ends.
        awaited = intent in state.open and state.stopping is None
        if machine.id not in state.machines and intent in state.orders and not awaited:
            granted = ev.Granted(machine.id, machine.started, machine.host)
            events.append(ev.Rented(intent, (granted,)))

    # Machines that were missing in earlier lists, and are not gone.
    for machine in machines:
        missed = state.machines.get(machine.id)
        was_missing = missed is not None and missed.end_reason == NOT_LISTED
        if was_missing and machine.state is not MachineState.GONE:
            events.append(ev.MachineListedAgain(machine.id))

    alive = {held.id for held in state.alive}
    known = [machine for machine in machines if machine.id in alive]
    events += [
        *_boots_and_ends(state, known, now),
        *_warned(state, known, source),
        *_bids(state, known),
        *_use(state, known, now),
    ]

    listed = {machine.id for machine in machines}
    for held in state.alive:
        is_covered = not held.id.startswith(unlisted)
        if is_covered and held.id not in listed and now - held.started > LISTING_DELAY:
            # When it ended is unknown; it is paid for until the end of its lease at the latest.
            events.append(ev.MachineEnded(held.id, min(now, held.lease_until), NOT_LISTED))

    return events


def settled(state: RunState, asked: int, unlisted: tuple[str, ...] = ()) -> list[Event]:
    """Unanswered orders whose machines, if they were created, must be in a list that was fetched at
    this time.
    """
    return [
        ev.OrderSettled(intent)
        for intent, since in state.unclear.items()
        if asked >= since + LISTING_DELAY and not hidden(state.orders[intent].market, unlisted)
    ]


def hidden(market: Market, unlisted: tuple[str, ...]) -> bool:
    """Whether machines of a market may be among those whose ids begin with one of `unlisted`."""
    region = f"{market.cloud}:{market.region}"
    # Google's ids name zones, those of the other clouds regions.
    return any(f"{region}:".startswith(part) or part.startswith(region) for part in unlisted)


def _boots_and_ends(state: RunState, known: Sequence[Machine], now: int) -> Iterator[Event]:
    """New phases of boots, and other signs of life now and then; then the machines that run now,
    and those that have ended."""
    for machine in known:
        held = state.machines[machine.id]
        is_ = machine.boot
        if is_ is None or held.ran is not None:
            continue
        further = STAGES.index(is_.stage) - STAGES.index(held.phase)
        if further > 0 or (
            further == 0 and is_.sign != held.sign and now - held.signed_at >= _SIGNS_EVERY
        ):
            yield ev.BootAdvanced(machine.id, is_.stage, is_.sign)

    for machine in known:
        if machine.state is MachineState.GONE:
            ended = now if machine.ended is None else max(machine.ended, machine.started)
            reason = "unknown" if machine.end_reason is None else _REASONS[machine.end_reason]
            yield ev.MachineEnded(machine.id, ended, reason, machine.failure)
        elif machine.state is MachineState.RUNNING and not state.machines[machine.id].running:
            yield ev.MachineRan(machine.id)


def _warned(state: RunState, known: Sequence[Machine], source: str) -> Iterator[Event]:
    """Warnings that are new, or give an earlier deadline than the one in the log."""
    for machine in known:
        deadline = machine.warned_until
        logged = state.machines[machine.id].warned_until
        if deadline is None or machine.state is MachineState.GONE:
            continue
        if logged is None or deadline < logged:
            yield ev.MachineWarned(machine.id, deadline, EVICTION, source)


def _bids(state: RunState, known: Sequence[Machine]) -> Iterator[Event]:
    """Bids that the cloud has: those that were to be raised without an answer, and others that are
    higher than ours.
    """
    raising = {
        intent.id: intent for intent in state.open.values() if isinstance(intent, ev.BidIntended)
    }
    listed = {
        machine.id: machine.bid for machine in known if machine.state is not MachineState.GONE
    }

    for name, intent in raising.items():
        held = state.machines[name]
        if not held.alive or listed.get(name) is not None:
            yield ev.BidChanged(intent.intent, name, listed.get(name) or intent.bid)

    for name, bid in listed.items():
        ours = state.machines[name].bid
        if (
            name not in raising
            and bid is not None
            and ours is not None
            and bid > ours * (1 + SAME_BID)
        ):
            yield ev.BidChanged(0, name, bid)


def _use(state: RunState, known: Sequence[Machine], now: int) -> Iterator[Event]:
    """The use of graphics cards, where it has changed noticeably, and then byte counts that have
    grown noticeably: a machine adds few rows to the log, however much it sends. A machine that does
    not answer reports no cards.
    """
    for machine in known:
        held = state.machines[machine.id]
        if machine.state is not MachineState.RUNNING or now - held.gpus_at < _CARDS_EVERY:
            continue
        cards = machine.gpus
        use = (None, None) if cards is None else (cards.busy, cards.memory)
        before = (None, None) if held.gpus is None else (held.gpus.busy, held.gpus.memory)
        differs = False
        for is_, was in zip(use, before, strict=True):
            is_far = is_ is None or was is None or abs(is_ - was) >= _CARDS_CHANGE
            differs |= is_ != was and is_far
        if differs:
            yield ev.CardsUsed(machine.id, *use)

    for machine in known:
        held = state.machines[machine.id]
        traffic = machine.traffic
        if traffic is None or now - held.traffic_at < _TRAFFIC_EVERY:
            continue
        noted = 0 if held.traffic is None else held.traffic.received + held.traffic.sent
        grown = traffic.received + traffic.sent - noted
        if grown >= max(_TRAFFIC_LEAST, noted // _TRAFFIC_SHARE):
            yield ev.TrafficCounted(machine.id, traffic.received, traffic.sent)
            before = (0, 0) if held.traffic is None else (held.traffic.received, held.traffic.sent)
            moved = traffic.received - before[0], traffic.sent - before[1]
            amount = sum(map(mul, moved, machine.traffic_prices))
            if amount > 0:
                # A host bills both directions, each at a price of its own.
                yield ev.Sent(machine.id, now, grown, -(-amount // grown))
