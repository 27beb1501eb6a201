"""`TrialJob`: a job of a full trial, launched by the command line as users launch it, and watched through the log."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spotctl.home.paths import Paths
from spotctl.log.state import Held, RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.kit.account import Kit, TrialFailed

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


class TrialJob:
    """A job on machines of the first kind; `more` are further lines of its job file, `resources` of that section."""

    def __init__(self, kit: Kit, name: str, more: str, resources: str = "") -> None:
        self.kit, self.name = kit, f"try-{name}"
        self.file = kit.folder / f"{self.name}.yaml"
        identity = f"identity: {{{kit.cloud}: {json.dumps(kit.identity)}}}\n" if kit.identity else ""
        head = _HEAD.format(
            name=self.name,
            budget=max(kit.cap_usd - kit.spent_usd, 0.01),
            identity=identity,
            cloud=kit.cloud,
            region=kit.region,
            type=kit.kinds[0].name,
        )
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
            self._charge()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs spotctl to its end. TrialFailed: it does not end."""
        try:
            return subprocess.run(
                self._words(*words), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise TrialFailed(f"spotctl {words[0]} has not ended after {PATIENCE_SECONDS:.0f} s") from None

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
        if answer.get("outcome") != "done":
            why = answer.get("message") or err.strip().rpartition("\n")[2] or "no answer"
            raise TrialFailed(f"{self.name}: {answer.get('outcome', 'not launched')}: {why}")
        return self.state()

    def state(self) -> RunState:
        """The run as its log tells it. TrialFailed: there is none."""
        with EventLog(Paths(self.kit.settings.home).log) as log:
            state = latest_run(log, self.name)
        if state is None:
            raise TrialFailed(f"{self.name} was not launched")
        return state

    def wait_for(self, process: subprocess.Popen[str], happened: Callable[[RunState], bool], what: str) -> RunState:
        """The run, once something has happened. TrialFailed: the run ended before, or it takes too long."""
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

    def _charge(self) -> None:
        """Counts what the machines of the run cost at most: their time by list prices."""
        try:
            state = self.state()
        except TrialFailed:
            return
        if state.run not in self.kit.runs:
            self.kit.runs.append(state.run)
        hours = sum(((held.ended or state.at) - held.started) / 3_600_000_000 for held in state.machines.values())
        self.kit.charge(hours * self.kit.usd_per_hour(self.kit.kinds[0].name))


def works(state: RunState) -> bool:
    """Whether a machine of the run has answered."""
    return any(is_at_work(held) for held in state.machines.values())


def is_at_work(held: Held) -> bool:
    """Whether a machine has answered and is not known to be gone."""
    return held.alive and held.ran is not None
