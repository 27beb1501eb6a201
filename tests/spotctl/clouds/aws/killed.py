"""Kills callers of the provider of AWS by SIGKILL around every call to AWS, and lets others repeat
what they did.

    python -m tests.spotctl.clouds.aws.killed [EVERY]

The points are: before a call, after it, and an answer that is lost although the call was carried
out. A caller is forked and meets its fate at one of them, at one of EVERY points. Then another
caller repeats the act, as a resumed run would, and the server is asked what exists. The command
prints the number of points, and every violation.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from pricing_data.errors import NoAnswer
from spotctl.clouds.aws.session import AwsAnswer, AwsClient
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, SETTINGS, provider

TAGS = {INSTALLATION_TAG: "i1", RUN_TAG: "job-1"}
ORDER = MachineRequest("t1", MARKET, 2, BID, 4_000_000_000 * 1_000_000, TAGS)
HERE = replace(SETTINGS, regions=("us-east-1",))
DONE, REFUSED, BROKEN, SPARED = range(4)
"""How a caller that was not killed ends: with its act done, refused, with an error, or before its
fate."""

FATES = ("killed before", "killed after", "answer lost")


def create() -> None:
    provider(HERE).create(ORDER)


def terminate() -> None:
    here = provider(HERE)
    here.terminate([one.id for one in here.list(TAGS)])


def remove() -> None:
    here = provider(HERE)
    here.remove(here.resources(TAGS))


def one_set_runs(ec2: Ec2) -> None:
    """The machines of the order were bought once, and what they need exists once and is
    complete."""
    assert len(ec2.machines()) == ORDER.count, ec2.machines()
    found = sorted(one.kind for one in ec2.resources())
    each = ["instance", "network interface", "spot request", "volume"]
    assert found == sorted([*each * ORDER.count, "security group"]), found
    assert all(one.tags.items() >= TAGS.items() for one in ec2.resources())
    groups = ec2.backend("us-east-1").describe_security_groups()
    (group,) = [group for group in groups if group.name != "default"]
    assert len(group.ingress_rules) == 2, group.ingress_rules


def all_ended(ec2: Ec2) -> None:
    ec2.wait()
    assert [one.state for one in provider(HERE).list(TAGS)] == [MachineState.GONE] * ORDER.count
    assert [one.kind for one in ec2.resources()] == ["security group"]


def nothing_is_left(ec2: Ec2) -> None:
    ec2.wait()
    assert not ec2.resources(), ec2.resources()
    assert len(ec2.machines()) == ORDER.count


@dataclass(frozen=True)
class Act:
    """What a caller does, what comes before, and what must hold once it was repeated."""

    before: Callable[[], None]
    act: Callable[[], None]
    holds: Callable[[Ec2], None]


ACTS = {
    "create": Act(lambda: None, create, one_set_runs),
    "terminate": Act(create, terminate, all_ended),
    "remove": Act(create, remove, nothing_is_left),
}


@dataclass
class Fate:
    """Counts the calls to AWS of this process, and ends it, or loses an answer, at one of them."""

    at: int | None = None
    kind: str = ""
    count: int = 0

    @property
    def met(self) -> bool:
        """Whether it came to the call."""
        return self.at is not None and self.count > self.at

    def meet(self, answer: Callable[[], AwsAnswer]) -> AwsAnswer:
        self.count += 1
        if self.count - 1 != self.at:
            return answer()
        if self.kind == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        given = answer()
        if self.kind == "killed after":
            os.kill(os.getpid(), signal.SIGKILL)
        del given
        raise NoAnswer("the answer was lost")

    def __enter__(self) -> Fate:
        self._usual = AwsClient.call, AwsClient._page
        call, page = self._usual

        def fateful_call(client: AwsClient, operation: str, **arguments: object) -> AwsAnswer:
            return self.meet(lambda: call(client, operation, **arguments))

        def fateful_page(
            client: AwsClient, operation: str, holding: str, /, **arguments: object
        ) -> AwsAnswer:
            return self.meet(lambda: page(client, operation, holding, **arguments))

        AwsClient.call, AwsClient._page = fateful_call, fateful_page  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        AwsClient.call, AwsClient._page = self._usual  # type: ignore[method-assign]


def calls_of(act: Act) -> int:
    """How many calls to AWS an act makes."""
    with pytest.MonkeyPatch.context() as environment, running_ec2(environment, Ec2) as ec2:
        act.before()
        with Fate() as fate:
            act.act()
        act.holds(ec2)
    return fate.count


def meet_fate(act: Act, at: int, kind: str) -> bool:
    """A caller meets its fate at a call, and another one repeats what it did; False if it ended
    before that call.

    An act that waits for the cloud makes more calls or fewer, so that a caller may be done before
    its fate.
    """
    with pytest.MonkeyPatch.context() as environment, running_ec2(environment, Ec2) as ec2:
        act.before()
        pid = os.fork()
        if pid == 0:
            code = BROKEN
            try:
                code = _ended(act, Fate(at, kind))
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        expected = (-signal.SIGKILL,) if kind.startswith("killed") else (DONE, REFUSED)
        ended = os.waitstatus_to_exitcode(status)
        assert ended in (*expected, SPARED), f"the caller ended with {ended}"
        act.act()
        act.holds(ec2)
    return ended != SPARED


def _ended(act: Act, fate: Fate) -> int:
    try:
        with fate:
            act.act()
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
    points, failed, spared = list[tuple[str, int, str]](), 0, 0
    for name, act in ACTS.items():
        calls = calls_of(act)
        say(f"{name}: {calls} calls")
        points += [(name, at, kind) for at in range(calls) for kind in FATES]
    random.Random(1).shuffle(points)
    chosen = points[::every]
    for name, at, kind in chosen:
        try:
            spared += not meet_fate(ACTS[name], at, kind)
        # All that goes wrong is shown, and the next point tried.
        except Exception as error:  # noqa: BLE001
            failed += 1
            say(f"{name}, {kind} at call {at}: {type(error).__name__}: {error}")
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
