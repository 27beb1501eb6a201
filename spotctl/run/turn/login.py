"""Waiting for the user to sign in again, as long as machines hold their leases."""

from spotctl.clouds.errors import LoginNeeded
from spotctl.clouds.lease_times import LeaseTimes
from spotctl.log import events as ev
from spotctl.run.turn.execute import Journal


class LoginWait:
    """Decides whether a run waits for a login, and logs when it begins and ends to wait."""

    def __init__(self, journal: Journal, times: LeaseTimes) -> None:
        self._journal = journal
        self._times = times

    def waits(self, refusal: LoginNeeded) -> bool:
        """Whether the run goes on after this refusal: until the first of its leases is about to end."""
        state, now = self._journal.state, self._journal.now()
        leases = [held.lease_until for held in state.alive if not held.returning]
        if state.stopping is not None or not leases:
            return False
        until = min(leases) - self._times.notice
        if state.login is None and now < until:
            self._journal.write(ev.LoginAwaited(str(refusal), until))
        return now < until

    def note_success(self) -> None:
        """Logs that the login works again."""
        if self._journal.state.login is not None:
            self._journal.write(ev.LoginWorks())
