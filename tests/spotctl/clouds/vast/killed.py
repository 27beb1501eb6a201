"""Kills callers of the provider of Vast.ai by SIGKILL around every call, and lets others repeat
what they did.

    python -m tests.spotctl.clouds.vast.killed [EVERY]

The points are: before a call, after it, and an answer that is lost although the call was carried
out; each also with a list that shows new instances late. A caller is forked and meets its fate at
one of them. Then another caller repeats the act, as a resumed run would, and the market is asked
what exists. The command prints the number of points, and every violation.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pricing_data.errors import NoAnswer
from pricing_data.units import SECOND
from spotctl.clouds.errors import ProviderError, Unanswered
from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.provider import EndReason, MachineState
from spotctl.clouds.vast.calls import VastCalls
from tests.spotctl.clouds.vast.world import BID, RUN, World, order, world
from tests.waiting import eventually

DONE, REFUSED, BROKEN, SPARED = range(4)
"""How a caller that was not killed ends: with its act done, refused, with an error, or before its
fate."""

FATES = ("killed before", "killed after", "answer lost")
LATE_SECONDS = (0.0, 1.0)
"""How late the list shows an instance."""

TIMES = (2 * SECOND, 3 * SECOND)
ORDER = order(machines=3)


def create(made: World) -> None:
    with closing(made.provider(times=TIMES)) as here:
        here.create(ORDER)


def terminate(made: World) -> None:
    with closing(made.provider(times=TIMES)) as here:
        here.terminate([machine.id for machine in here.list(RUN)])


def outbid_and_returned(made: World) -> None:
    """As a run does that sees paused machines."""
    with closing(made.provider(times=TIMES)) as here:
        here.terminate(
            [machine.id for machine in here.list(RUN) if machine.state is MachineState.PAUSED]
        )


def raise_bids(made: World) -> None:
    with closing(made.provider(times=TIMES)) as here:
        for machine in here.list(RUN):
            assert here.raise_bid(machine.id, 2 * BID) == 2 * BID


def rented_and_outbid(made: World) -> None:
    create(made)
    for contract in made.market.alive():
        made.market.outbid(contract.host, 0.9)


def one_set_exists(made: World) -> None:
    """Each machine of the order was bought once, and is known."""
    labels = [OrderLabel.parse(contract.label) for contract in made.market.contracts.values()]
    assert sorted(label.index for label in labels if label is not None) == list(
        range(ORDER.count)
    ), labels
    assert len(made.market.alive()) == ORDER.count
    with closing(made.provider(times=TIMES)) as here:
        assert len(here.list(RUN)) == ORDER.count


def all_bid_more(made: World) -> None:
    one_set_exists(made)
    with closing(made.provider(times=TIMES)) as here:
        assert {machine.bid for machine in here.list(RUN)} == {2 * BID}


def all_ended(reason: EndReason, made: World) -> None:
    """No instance is left, and all machines are known to have ended for this reason."""
    assert not made.market.alive()
    with closing(made.provider(times=TIMES)) as here:
        eventually(lambda: all(machine.state is MachineState.GONE for machine in here.list(RUN)))
        ends = [machine.end_reason for machine in here.list(RUN)]
        assert ends == [reason] * ORDER.count, ends


@dataclass(frozen=True)
class Act:
    """What a caller does, what comes before, and what must hold once it was repeated."""

    before: Callable[[World], None]
    act: Callable[[World], None]
    holds: Callable[[World], None]


ACTS = {
    "create": Act(lambda _: None, create, one_set_exists),
    "terminate": Act(create, terminate, partial(all_ended, EndReason.RETURNED)),
    "raise": Act(create, raise_bids, all_bid_more),
    "outbid": Act(rented_and_outbid, outbid_and_returned, partial(all_ended, EndReason.EVICTED)),
}


@dataclass
class Fate:
    """Counts the calls of this process, and ends it, or loses an answer, at one of them."""

    at: int | None = None
    kind: str = ""
    count: int = 0

    @property
    def met(self) -> bool:
        return self.at is not None and self.count > self.at

    def __enter__(self) -> Fate:
        usual = self._usual = VastCalls._answer

        def fateful(calls: VastCalls, *words: Any) -> Any:  # noqa: ANN401 - as the call has them
            self.count += 1
            if self.count - 1 != self.at:
                return usual(calls, *words)
            if self.kind == "killed before":
                os.kill(os.getpid(), signal.SIGKILL)
            usual(calls, *words)
            if self.kind == "killed after":
                os.kill(os.getpid(), signal.SIGKILL)
            raise NoAnswer("the answer was lost")

        VastCalls._answer = fateful  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        VastCalls._answer = self._usual  # type: ignore[method-assign]


def calls_of(act: Act) -> int:
    """How many calls an act makes."""
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as made:
        act.before(made)
        with Fate() as fate:
            act.act(made)
        act.holds(made)
    return fate.count


def meet_fate(act: Act, at: int, kind: str, late: float) -> bool:
    """A caller meets its fate at a call, and another one repeats what it did; False if it ended
    before that call.
    """
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as made:
        act.before(made)
        made.api.lists_late = late
        pid = os.fork()
        if pid == 0:
            code = BROKEN
            try:
                code = _ended(act, made, Fate(at, kind))
            finally:
                os._exit(code)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expected = (-signal.SIGKILL,) if kind.startswith("killed") else (DONE, REFUSED)
        assert ended in (*expected, SPARED), f"the caller ended with {ended}"
        _repeated(act, made)
        made.api.lists_late = 0.0
        act.act(made)
        act.holds(made)
    return ended != SPARED


def _repeated(act: Act, made: World) -> None:
    """Repeats an act as a run does: until it is not told to try again."""
    give_up = time.monotonic() + 60
    while True:
        try:
            act.act(made)
        except Unanswered:
            assert time.monotonic() < give_up, "it never succeeded"
            time.sleep(0.2)
        else:
            return


def _ended(act: Act, made: World, fate: Fate) -> int:
    try:
        with fate:
            act.act(made)
    except ProviderError:
        return REFUSED
    except Exception:  # noqa: BLE001 - an exception in a fork would otherwise be lost
        traceback.print_exc()
        return BROKEN
    return DONE if fate.met else SPARED


def main(every: int) -> int:
    """Tries one of `every` points, chosen at random but always the same; returns the number of
    violations.
    """
    points, failed, spared = list[tuple[str, int, str, float]](), 0, 0
    for name, act in ACTS.items():
        calls = calls_of(act)
        say(f"{name}: {calls} calls")
        points += [
            (name, at, kind, late) for at in range(calls) for kind in FATES for late in LATE_SECONDS
        ]
    random.Random(1).shuffle(points)
    chosen = points[::every]
    for name, at, kind, late in chosen:
        try:
            spared += not meet_fate(ACTS[name], at, kind, late)
        # All that goes wrong is shown, and the next point tried.
        except Exception as error:  # noqa: BLE001
            failed += 1
            say(
                f"{name}, {kind} at call {at}, lists {late:.0f} s late: {type(error).__name__}: "
                f"{error}"
            )
    say(
        f"{len(chosen)} of {len(points)} points tried, {failed} failed, {spared} callers ended "
        "before theirs"
    )
    return failed + (spared > len(chosen) // 4)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1) > 0)
