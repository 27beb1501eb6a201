"""Steps with jobs, which are launched by the command line as users launch them, and watched through
the log.

A killed launcher, an eviction and a checkpoint, a training, and a runner that moves.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pricing_data.units import HOUR, NANOS_PER_DOLLAR, SECOND, counted
from spotctl.clouds.provider import CloudProvider
from spotctl.home.paths import Paths
from spotctl.log.state import EVICTED, Held, RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.remote_runner.place import known_place
from spotctl.run.trial.record import PASSED, Kit, StepResult, StepSkipped, TrialFailed

_SAVE = (
    "echo saved > $SPOTCTL_CHECKPOINT_DIR/.step && mv $SPOTCTL_CHECKPOINT_DIR/.step "
    "$SPOTCTL_CHECKPOINT_DIR/step"
)

_RESTORED = "grep saved $SPOTCTL_CHECKPOINT_DIR/step"

_SHORT = """\
kind: command
run: sleep 20
"""

_EVICTED = """\
kind: command
run: if [ "$SPOTCTL_ATTEMPT" = 1 ]; then {save}; sleep 3600; else {check}; fi
{checkpoint}"""

_TRAINING = """\
  machines: 1
  reliable: {{machines: 1, type: {type}}}
kind: agileml
app: mlr
stop: {{clocks: 50}}
throughputs: {{{type}: 3600}}
"""

_MOVED = """\
kind: command
run: sleep 20; echo moved > $OUTPUT_RESULT/answer
outputs: {{result: {place}}}
"""

PATIENCE_SECONDS = 900.0
"""How long a job may take until something has happened, or until it has ended."""

_LOOK_SECONDS = 1.0
_HEAD = """\
name: {name}
workdir: .
budget: {budget:.2f} USD
{identity}resources:
  clouds: [{cloud}]
  regions: [{region}]
  types: [{type}]
"""


def kill_launcher(kit: Kit) -> Iterator[StepResult]:
    """SIGKILL to the launcher once its machine works, then `spotctl resume`: nothing may be bought
    twice.
    """
    job = TrialJob(kit, "killed", _SHORT)
    with job.launched("--attached") as process:
        job.wait_for(process, works, "a machine worked")
        process.kill()
        process.communicate()
        began = time.monotonic()
        resumed = job.run("resume", job.name, "--foreground", "--json")
        state = job.require_done(resumed.stdout, resumed.stderr)

    if len(state.machines) != 1:
        raise TrialFailed(f"{len(state.machines)} machines were bought for a job of one")

    seconds = time.monotonic() - began
    figures = {"resumed_seconds": round(seconds, 1), "machines": 1}
    detail = (
        f"resumed and done {seconds:.0f} s after SIGKILL, on the machine that was bought before"
    )
    yield StepResult("launcher", PASSED, detail, figures=figures)


def evict(kit: Kit) -> Iterator[StepResult]:
    """The cloud's simulator evicts a working machine; with a bucket, the next one continues from a
    checkpoint there.
    """
    provider = kit.provider
    if type(provider).simulate_eviction is CloudProvider.simulate_eviction:
        raise StepSkipped(f"{provider.name} takes no machine back on request")
    place = f"{kit.bucket.rstrip('/')}/{kit.bare_run}/checkpoint/"
    checkpoint = f"checkpoint: {{path: {place}, every: 2s}}\n" if kit.bucket else ""
    save, check = (_SAVE, _RESTORED) if kit.bucket else ("true", "true")
    job = TrialJob(kit, "evicted", _EVICTED.format(save=save, check=check, checkpoint=checkpoint))

    def is_saved(state: RunState) -> bool:
        has_begun = state.work.attempt is not None and works(state)
        return has_begun and (not kit.bucket or state.work.checkpoint is not None)

    with job.launched("--attached") as process:
        state = job.wait_for(process, is_saved, "its work was saved")
        (machine,) = (held.id for held in state.machines.values() if is_at_work(held))
        asked = provider.now()
        provider.simulate_eviction(machine)
        state = job.done(process)

    detail, figures = seen_of_eviction(state.machines[machine], asked)
    detail += f"; done on {counted(len(state.machines), 'machine')}"
    yield StepResult("eviction", PASSED, detail, figures=figures)
    if not kit.bucket:
        yield StepResult(
            "checkpoint", "skipped", "needs --bucket, where the machines' identity may write"
        )
        return

    saved = state.work.checkpoint
    detail = "saved with the machine's identity, and restored on the next machine"
    yield StepResult("checkpoint", PASSED, detail, figures={"saved": int(saved is not None)})


def seen_of_eviction(held: Held, asked: int) -> tuple[str, dict[str, float | int | str]]:
    """The course of an eviction that was asked for, in words and seconds. TrialFailed: there was
    none.

    After a notice, a run saves its work and may return the machine before the cloud takes it.
    """
    is_evicted, warned = held.end_reason == EVICTED, held.warned_until
    if held.ended is None or (warned is None and not is_evicted):
        why = held.end_reason or "it is still listed"
        raise TrialFailed(f"the machine was neither warned nor evicted: {why}")

    end_seconds = round((held.ended - asked) / SECOND, 1)
    figures: dict[str, float | int | str] = {"end_seconds": end_seconds}
    how = "taken" if is_evicted else "saved and returned"
    detail = f"{how} {end_seconds:.0f} s after the request"
    if warned is None:
        return f"{detail}, without a notice", figures

    notice_seconds = round((warned - asked) / SECOND, 1)
    figures["notice_seconds"] = notice_seconds
    return f"{detail}, with a notice of {notice_seconds:.0f} s", figures


def train(kit: Kit) -> Iterator[StepResult]:
    """A training on a reliable and a spot machine."""
    job = TrialJob(kit, "training", "", _TRAINING.format(type=kit.kinds[0].name))
    with job.launched("--attached") as process:
        state = job.done(process)
    clock = 0 if state.progress is None else state.progress.clock
    number = len(state.machines)
    detail = f"{clock} clocks on {counted(number, 'machine')}"
    yield StepResult("training", PASSED, detail, figures={"clocks": clock, "machines": number})


def move_runner(kit: Kit) -> Iterator[StepResult]:
    """A job whose runner moves to its reliable machine, which rents, returns itself and keeps the
    result.
    """
    if not kit.bucket:
        raise StepSkipped("needs --bucket, where the machines' identity may write")

    place = f"{kit.bucket.rstrip('/')}/{kit.bare_run}/moved/"
    job = TrialJob(kit, "moved", _MOVED.format(place=place), "  reliable: {machines: 1}\n")
    with job.launched() as process:
        job.wait_for(
            process,
            lambda _: known_place(job.name, kit.settings) is not None,
            "its runner had moved",
        )
        state = job.done(process)

    detail = (
        f"the runner moved, the result is in the bucket, {counted(len(state.machines), 'machine')}"
    )
    yield StepResult("runner", PASSED, detail, figures={"machines": len(state.machines)})


class TrialJob:
    """A job on machines of the first kind; `more` are further lines of its job file, `resources` of
    that section.
    """

    def __init__(self, kit: Kit, name: str, more: str, resources: str = "") -> None:
        self.kit, self.name = kit, f"try-{name}"
        self.file = kit.folder / f"{self.name}.yaml"
        identity = ""
        if kit.identity:
            identity = f"identity: {{{kit.cloud}: {json.dumps(kit.identity)}}}\n"
        places = {"cloud": kit.cloud, "region": kit.region, "type": kit.kinds[0].name}
        budget = max(kit.cap_usd - kit.spent_usd, 0.01)
        head = _HEAD.format(name=self.name, budget=budget, identity=identity, **places)
        self.file.write_text(f"{head}{resources}{more}")

    @contextmanager
    def launched(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """`spotctl launch` in a process of its own. If the block fails, the job is stopped."""
        words = self._words("launch", str(self.file), "--yes", "--fresh", "--json", *options)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        except BaseException:
            process.kill()
            self.run("stop", self.name)
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
            with suppress(TrialFailed):
                state = self.state()
                if state.run not in self.kit.runs:
                    self.kit.runs.append(state.run)
                # Its machines cost at most their time by list prices.
                usd_per_hour = self.kit.list_price(self.kit.kinds[0].name) / NANOS_PER_DOLLAR
                for held in state.machines.values():
                    hours = ((held.ended or state.at) - held.started) / HOUR
                    self.kit.spent_usd += hours * usd_per_hour

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs spotctl to its end. TrialFailed: it does not end."""
        try:
            return subprocess.run(
                self._words(*words),
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TrialFailed(
                f"spotctl {words[0]} has not ended after {PATIENCE_SECONDS:.0f} s"
            ) from None

    def done(self, process: subprocess.Popen[str]) -> RunState:
        """The run, once it is done. TrialFailed: it ended in another way, or does not end."""
        try:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise TrialFailed(f"{self.name} has not ended after {PATIENCE_SECONDS:.0f} s") from None
        return self.require_done(out, err)

    def require_done(self, out: str, err: str) -> RunState:
        """The run, if the answer of a command says that it is done."""
        answer: dict[str, Any] = json.loads(out) if out.strip() else {}
        outcome = answer.get("outcome", "not launched")
        if outcome != "done":
            last_line = err.strip().rpartition("\n")[2]
            why = answer.get("message") or last_line or "no answer"
            raise TrialFailed(f"{self.name}: {outcome}: {why}")
        return self.state()

    def state(self) -> RunState:
        """The run as its log tells it. TrialFailed: there is none."""
        with EventLog(Paths(self.kit.settings.home).log) as log:
            state = latest_run(log, self.name)
        if state is None:
            raise TrialFailed(f"{self.name} was not launched")
        return state

    def wait_for(
        self, process: subprocess.Popen[str], happened: Callable[[RunState], bool], what: str
    ) -> RunState:
        """The run, once something has happened. TrialFailed: the run ended before, or it takes too
        long.
        """
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            if process.poll() is not None:
                out, err = process.communicate()
                self.require_done(out, err)
                raise TrialFailed(f"{self.name} was done before {what}")
            with EventLog(Paths(self.kit.settings.home).log) as log:
                state = latest_run(log, self.name)
            if state is not None and state.ended is None and happened(state):
                return state
            if time.monotonic() >= give_up:
                raise TrialFailed(f"{self.name}: after {PATIENCE_SECONDS:.0f} s not yet {what}")
            time.sleep(_LOOK_SECONDS)

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "spotctl", "--home", str(self.kit.settings.home), *words]


def works(state: RunState) -> bool:
    """Whether a machine of the run has answered."""
    return any(is_at_work(held) for held in state.machines.values())


def is_at_work(held: Held) -> bool:
    """Whether a machine has answered and is not known to be gone."""
    return held.alive and held.ran is not None
