"""Sends messages about the nights of a job, however much of its files can be read."""

import os
from contextlib import suppress
from dataclasses import dataclass

from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec, Notify
from spotctl.home.errors import BadRequest
from spotctl.nightly import addresses, environment
from spotctl.nightly.night_log import NightLog
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.run.notify.webhook import Delivery, Message, beat, post


@dataclass
class NightReporter:
    """Logs and posts messages, and tells the health check how nights begin and end.

    `nightly` is None if the installation cannot be read. `delivered` is false after a message that could not be sent.
    """

    state_dir: StateDir
    nightly: Installed | None
    log: NightLog
    delivered: bool = True

    def send(self, message: Message, signal: str) -> None:
        """Logs and posts a message, and tells the health check how the night ended."""
        self.log.write(message.text.splitlines())
        webhook = self._addresses().webhook
        if webhook is not None:
            self._logged(post(message, webhook))
        # A health check alone has to hear of it; with a webhook, the message suffices.
        heard = self.beat(signal)
        self.delivered = self.delivered and (webhook is not None or heard)

    def beat(self, signal: str) -> bool:
        """Whether the health check, if there is one, was told."""
        heartbeat = self._addresses().heartbeat
        if heartbeat is None:
            return True
        delivery = beat(heartbeat, signal)
        self.log.write([f"{delivery.text} (health check{signal})"])
        return not delivery.failure

    def job(self) -> JobSpec | None:
        """The job file; None if it cannot be read."""
        try:
            return None if self.nightly is None else load(self.nightly.file)
        except BadRequest:
            return None

    def _addresses(self) -> Notify:
        """The addresses of the job file, or those that were last read from it."""
        spec, path = self.job(), self.state_dir.addresses
        if spec is not None:
            known = spec.notify
            with suppress(OSError):
                addresses.keep(path, known)
        else:
            installed = self.nightly and Notify(self.nightly.webhook, self.nightly.heartbeat)
            known = addresses.read(path) or installed or Notify()
        return addresses.resolved(known, {**environment.readable(self.state_dir.environment), **os.environ})

    def _logged(self, delivery: Delivery) -> None:
        self.log.write([delivery.text])
        self.delivered = self.delivered and not delivery.failure
