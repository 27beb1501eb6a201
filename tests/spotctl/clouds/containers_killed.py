"""Kills callers of the provider of a cloud of containers by SIGKILL around every call, and lets others
repeat what they did.

    python -m tests.spotctl.clouds.containers_killed CLOUD [EVERY]

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
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pricing_data.errors import NoAnswer
from pricing_data.units import SECOND
from spotctl.clouds.errors import ProviderError, Unanswered
from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.vast.calls import VastCalls
from tests.spotctl.clouds.runpod import world as runpod
from tests.spotctl.clouds.vast import world as vast
from tests.waiting import eventually

DONE, REFUSED, BROKEN, SPARED = range(4)
"""How a caller that was not killed ends: with its act done, refused, with an error, or before its
fate."""

FATES = ("killed before", "killed after", "answer lost")
LATE_SECONDS = (0.0, 1.0)
"""How late the list shows an instance."""

TIMES = (2 * SECOND, 3 * SECOND)
MACHINES = 3


@dataclass(frozen=True)
class RentedCloud:
    """A cloud's world (`tests.spotctl.clouds.NAME.world`), the method through which all its calls go,
    how others outbid a container, and the labels of all that were ever bought."""

    world: Any
    calls: type
    method: str
    outbid: Callable[[Any, Any], None]
    labels: Callable[[Any], list[str | None]]


def _outbid_pod(market: Any, pod: Any) -> None:  # noqa: ANN401 - of the cloud
    # One that RunPod stops within seconds of its order was not outbid.
    market.advance(11)
    market.outbid(pod, 0.9)


def _labels_of_pods(market: Any) -> list[str | None]:  # noqa: ANN401 - of the cloud
    given = [pod.given["env"] for pod in market.pods.values()]
    return [{one["key"]: one["value"] for one in env}["SPOTCTL_LABEL"] for env in given]


CLOUDS = {
    "vast": RentedCloud(
        vast,
        VastCalls,
        "_answer",
        lambda market, contract: market.outbid(contract.host, 0.9),
        lambda market: [contract.label for contract in market.contracts.values()],
    ),
    "runpod": RentedCloud(runpod, RunPodCalls, "ask", _outbid_pod, _labels_of_pods),
}
CLOUD = CLOUDS[sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in CLOUDS else "vast"]
ORDER: MachineRequest = CLOUD.world.order(machines=MACHINES)
RUN: Mapping[str, str] = CLOUD.world.RUN


def create(made: Any) -> None:  # noqa: ANN401 - a world of the cloud, as below
    with closing(made.provider(times=TIMES)) as here:
        here.create(ORDER)


def terminate(made: Any) -> None:  # noqa: ANN401
    with closing(made.provider(times=TIMES)) as here:
        here.terminate([machine.id for machine in here.list(RUN)])


def outbid_and_returned(made: Any) -> None:  # noqa: ANN401
    """As a run does that sees paused machines."""
    with closing(made.provider(times=TIMES)) as here:
        here.terminate(
            [machine.id for machine in here.list(RUN) if machine.state is MachineState.PAUSED]
        )


def raise_bids(made: Any) -> None:  # noqa: ANN401
    with closing(made.provider(times=TIMES)) as here:
        for machine in here.list(RUN):
            assert here.raise_bid(machine.id, 2 * vast.BID) == 2 * vast.BID


def rented_and_outbid(made: Any) -> None:  # noqa: ANN401
    create(made)
    for rented in made.market.alive():
        CLOUD.outbid(made.market, rented)


def one_set_exists(made: Any) -> None:  # noqa: ANN401
    """Each machine of the order was bought once, and is known."""
    labels = [OrderLabel.parse(text) for text in CLOUD.labels(made.market)]
    assert sorted(label.index for label in labels if label is not None) == list(
        range(ORDER.count)
    ), labels
    assert len(made.market.alive()) == ORDER.count
    with closing(made.provider(times=TIMES)) as here:
        assert len(here.list(RUN)) == ORDER.count


def all_bid_more(made: Any) -> None:  # noqa: ANN401
    one_set_exists(made)
    with closing(made.provider(times=TIMES)) as here:
        assert {machine.bid for machine in here.list(RUN)} == {2 * vast.BID}


def all_ended(reason: EndReason, made: Any) -> None:  # noqa: ANN401
    """No instance is left, and all machines are known to have ended for this reason."""
    assert not made.market.alive()
    with closing(made.provider(times=TIMES)) as here:
        eventually(lambda: all(machine.state is MachineState.GONE for machine in here.list(RUN)))
        ends = [machine.end_reason for machine in here.list(RUN)]
        assert ends == [reason] * ORDER.count, ends


@dataclass(frozen=True)
class Act:
    """What a caller does, what comes before, and what must hold once it was repeated."""

    before: Callable[[Any], None]
    act: Callable[[Any], None]
    holds: Callable[[Any], None]


ACTS = {
    "create": Act(lambda _: None, create, one_set_exists),
    "terminate": Act(create, terminate, partial(all_ended, EndReason.RETURNED)),
    **({"raise": Act(create, raise_bids, all_bid_more)} if CLOUD.world is vast else {}),
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
        usual = self._usual = getattr(CLOUD.calls, CLOUD.method)

        def fateful(*words: Any, **more: Any) -> Any:  # noqa: ANN401 - as the call has them
            self.count += 1
            if self.count - 1 != self.at:
                return usual(*words, **more)
            if self.kind == "killed before":
                os.kill(os.getpid(), signal.SIGKILL)
            usual(*words, **more)
            if self.kind == "killed after":
                os.kill(os.getpid(), signal.SIGKILL)
            raise NoAnswer("the answer was lost")

        setattr(CLOUD.calls, CLOUD.method, fateful)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(CLOUD.calls, CLOUD.method, self._usual)


def calls_of(act: Act) -> int:
    """How many calls an act makes."""
    with tempfile.TemporaryDirectory() as folder, CLOUD.world.world(Path(folder)) as made:
        act.before(made)
        with Fate() as fate:
            act.act(made)
        act.holds(made)
    return fate.count


def meet_fate(act: Act, at: int, kind: str, late: float) -> bool:
    """A caller meets its fate at a call, and another one repeats what it did; False if it ended
    before that call.
    """
    with tempfile.TemporaryDirectory() as folder, CLOUD.world.world(Path(folder)) as made:
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


def _repeated(act: Act, made: Any) -> None:  # noqa: ANN401
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


def _ended(act: Act, made: Any, fate: Fate) -> int:  # noqa: ANN401
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
    sys.exit(main(int(sys.argv[2]) if len(sys.argv) > 2 else 1) > 0)
