"""A training loop's side of its lease: decides when to save and when to end, and reports progress
to the agent.
"""

import signal
import threading
import time
from os import getpid
from types import FrameType

from spotctl.agent.checkpoints.interval import CheckpointPlanReader
from spotctl.agent.checkpoints.local import TrainingPosition
from spotctl.agent.lease.lease_files import (
    JobPace,
    JobProgress,
    LeaseAct,
    LeaseDecision,
    LeaseHolder,
    SecondsClock,
    decide,
)

SAVED_AND_ENDED = 75
"""The exit code of a job that saved its state to be moved: EX_TEMPFAIL, try again elsewhere."""

_REPORT_SECONDS = 1.0
_SAVE_SECONDS = 600.0
# A slow step counts for some time, so that a job with uneven steps does not end too late.
_SLOWEST_DECAY = 0.9


class LeaseEnded(SystemExit):
    """The job has saved and must end here. Uncaught, this exits with `SAVED_AND_ENDED` and no
    traceback.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(SAVED_AND_ENDED)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class JobLease:
    """Keeps the pace of a loop and reads its lease. Without an agent (`holder` None) saves are due
    from time to time.

    A command job gets SIGTERM when its machine is about to end. With an agent, and unless the
    program handles SIGTERM itself, the signal no longer ends the process: it makes the next
    decision END.
    """

    def __init__(
        self,
        holder: LeaseHolder | None = None,
        save_every_seconds: float | None = None,
        look_every: int = 1,
        clock: SecondsClock = time.monotonic,
    ) -> None:
        self._holder = holder or LeaseHolder.of()
        self._save_every_seconds, self._look_every, self._clock = (
            save_every_seconds,
            look_every,
            clock,
        )

        self._plan = CheckpointPlanReader.of()
        self._here = 0
        self._slowest = 0.0
        self._saving: float | None = None
        self._saved: int | None = None
        self._wants: int | None = None
        self._last_save = self._last_step = self._last_report = clock()
        self._told_to_end = self._over = False
        handler = signal.getsignal(signal.SIGTERM)
        if handler is signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), JobLease):
            self.listen()

    def listen(self) -> None:
        """Takes SIGTERM over, also from a library that handles the signal."""
        if self._holder is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, _: int, __: FrameType | None) -> None:
        self._told_to_end = True
        if self._over:  # a library has put this handler back
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    def start_step(self) -> None:
        """Starts the clock of a step: the time before this call is not part of the step."""
        self._last_step = self._clock()

    def count_step(self) -> None:
        now = self._clock()
        self._here += 1
        self._slowest = max(now - self._last_step, self._slowest * _SLOWEST_DECAY)
        self._last_step = now

    def decision(self) -> LeaseDecision:
        """The act before the next step, and its reason."""
        now, length = self._clock(), 0.0
        lease = notice = None
        if self._holder is not None:
            lease, notice = self._holder.lease(), self._holder.notice()
            length = self._holder.length

        pace = JobPace(
            self._here, self._slowest * self._look_every, self._saving, now - self._last_save
        )

        save_every = self._save_every_seconds
        if save_every is None:
            save_every = (self._plan and self._plan.every()) or _SAVE_SECONDS
        decision = decide(now, lease, notice, pace, length, save_every)
        if self._holder is not None and notice is not None:
            self._holder.mark_heeded(notice)

        if self._told_to_end and decision.act is not LeaseAct.END:
            return LeaseDecision(LeaseAct.END, "SIGTERM: the machine is about to end")
        return decision

    def note_save(self, step: int, since: float | None = None) -> None:
        """Notes that a checkpoint of this step exists, written from `since` until now, or
        restored."""
        self._saved = step
        if since is not None:
            self._last_save = self._clock()
            self._saving = self._last_save - since

    def report_start(self, position: TrainingPosition) -> None:
        """Reports that the loop runs, from this position."""
        self._report("running", position)

    def report_progress(
        self, decision: LeaseDecision, position: TrainingPosition, *, saved: bool
    ) -> None:
        """Reports progress after a decision: at once after a save or with a new request for a
        lease.
        """
        wanted, self._wants = self._wants, decision.ask
        is_news = saved or (decision.ask is not None and decision.ask != wanted)
        self._report("running", position, decision.reason, force=is_news)

    def report_end(self, decision: LeaseDecision, position: TrainingPosition) -> LeaseEnded:
        """Reports that the job has saved and ends; returns the exception to raise."""
        reason = decision.reason or "another rank must end"
        self._release()
        self._report("ended", position, reason)
        return LeaseEnded(f"{reason}; saved at step {position.step}")

    def report_finish(self, position: TrainingPosition) -> None:
        self._release()
        self._report("finished", position)

    def _release(self) -> None:
        """Gives SIGTERM back: from here on, the signal ends the program as it would without a
        lease.
        """
        self._over = True
        if signal.getsignal(signal.SIGTERM) == self._on_term:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _report(
        self, state: str, position: TrainingPosition, reason: str = "", *, force: bool = True
    ) -> None:
        """Reports progress; without `force` only from time to time."""
        now = self._clock()
        if self._holder is None or (not force and now - self._last_report < _REPORT_SECONDS):
            return

        self._last_report = now
        lease = self._holder.lease().number
        self._holder.report(
            JobProgress(
                getpid(),
                state,
                position.epoch,
                position.step,
                self._saved,
                self._saving,
                lease,
                self._wants,
                reason,
            )
        )
