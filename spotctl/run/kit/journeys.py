"""Steps with jobs: a killed launcher, an eviction and a checkpoint, a training, and a runner that moves."""

import time
from collections.abc import Iterator

from pricing_data.units import SECOND, counted
from spotctl.clouds.capabilities import AllowsTrials
from spotctl.log.state import EVICTED, Held, RunState
from spotctl.run.elsewhere.place import known_place
from spotctl.run.kit.account import Kit, StepSkipped, TrialFailed
from spotctl.run.kit.jobs import TrialJob, is_at_work, works
from spotctl.run.kit.record import PASSED, StepResult

_SAVE = "echo saved > $SPOTCTL_CHECKPOINT_DIR/.step && mv $SPOTCTL_CHECKPOINT_DIR/.step $SPOTCTL_CHECKPOINT_DIR/step"
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


def kill_launcher(kit: Kit) -> Iterator[StepResult]:
    """SIGKILL to the launcher once its machine works, then `spotctl resume`: nothing may be bought twice."""
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
    detail = f"resumed and done {seconds:.0f} s after SIGKILL, on the machine that was bought before"
    yield StepResult("launcher", PASSED, detail, figures=figures)


def evict(kit: Kit) -> Iterator[StepResult]:
    """The cloud's simulator evicts a working machine; with a bucket, the next one continues from a checkpoint there."""
    provider = kit.provider
    assert isinstance(provider, AllowsTrials)
    place = f"{kit.bucket.rstrip('/')}/{kit.bare_run}/checkpoint/"
    checkpoint = f"checkpoint: {{path: {place}, every: 2s}}\n" if kit.bucket else ""
    save, check = (_SAVE, _RESTORED) if kit.bucket else ("true", "true")
    job = TrialJob(kit, "evicted", _EVICTED.format(save=save, check=check, checkpoint=checkpoint))
    with job.launched("--attached") as process:
        state = job.wait_for(process, lambda state: _is_ready(state, saves=bool(kit.bucket)), "its work was saved")
        (machine,) = (held.id for held in state.machines.values() if is_at_work(held))
        asked = provider.now()
        provider.simulate_eviction(machine)
        state = job.done(process)
    detail, figures = seen_of_eviction(state.machines[machine], asked)
    detail += f"; done on {counted(len(state.machines), 'machine')}"
    yield StepResult("eviction", PASSED, detail, figures=figures)
    if not kit.bucket:
        yield _skipped_checkpoint()
        return
    saved = state.work.checkpoint
    detail = "saved with the machine's identity, and restored on the next machine"
    yield StepResult("checkpoint", PASSED, detail, figures={"saved": int(saved is not None)})


def seen_of_eviction(held: Held, asked: int) -> tuple[str, dict[str, float | int | str]]:
    """The course of an eviction that was asked for, in words and seconds. TrialFailed: there was none.

    After a notice, a run saves its work and may return the machine before the cloud takes it.
    """
    if held.ended is None or (held.warned_until is None and held.end_reason != EVICTED):
        raise TrialFailed(f"the machine was neither warned nor evicted: {held.end_reason or 'it is still listed'}")
    figures: dict[str, float | int | str] = {"end_seconds": round((held.ended - asked) / SECOND, 1)}
    how = "taken" if held.end_reason == EVICTED else "saved and returned"
    detail = f"{how} {figures['end_seconds']:.0f} s after the request"
    if held.warned_until is None:
        return f"{detail}, without a notice", figures
    figures["notice_seconds"] = round((held.warned_until - asked) / SECOND, 1)
    return f"{detail}, with a notice of {figures['notice_seconds']:.0f} s", figures


def train(kit: Kit) -> Iterator[StepResult]:
    """A training on a reliable and a spot machine."""
    job = TrialJob(kit, "training", "", _TRAINING.format(type=kit.kinds[0].name))
    with job.launched("--attached") as process:
        state = job.done(process)
    clock = 0 if state.progress is None else state.progress.clock
    figures = {"clocks": clock, "machines": len(state.machines)}
    yield StepResult(
        "training", PASSED, f"{clock} clocks on {counted(len(state.machines), 'machine')}", figures=figures
    )


def move_runner(kit: Kit) -> Iterator[StepResult]:
    """A job whose runner moves to its reliable machine, which rents, returns itself and keeps the result."""
    if not kit.bucket:
        raise StepSkipped("needs --bucket, where the machines' identity may write")
    place = f"{kit.bucket.rstrip('/')}/{kit.bare_run}/moved/"
    job = TrialJob(kit, "moved", _MOVED.format(place=place), "  reliable: {machines: 1}\n")
    with job.launched() as process:
        job.wait_for(process, lambda _: known_place(job.name, kit.settings) is not None, "its runner had moved")
        state = job.done(process)
    detail = f"the runner moved, the result is in the bucket, {counted(len(state.machines), 'machine')}"
    yield StepResult("runner", PASSED, detail, figures={"machines": len(state.machines)})


def _is_ready(state: RunState, *, saves: bool) -> bool:
    has_begun = state.work.attempt is not None and works(state)
    return has_begun and (not saves or state.work.checkpoint is not None)


def _skipped_checkpoint() -> StepResult:
    return StepResult("checkpoint", "skipped", "needs --bucket, where the machines' identity may write")
