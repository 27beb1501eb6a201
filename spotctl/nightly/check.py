"""All checks of one nightly job: its installation, its timer, its records and its last nights."""

from dataclasses import dataclass
from datetime import tzinfo

from spotctl.home.errors import BadRequest
from spotctl.nightly.health import problems
from spotctl.nightly.install import Timers, renewal, trouble
from spotctl.nightly.state_dir import Installed, StateDir


@dataclass(frozen=True, slots=True)
class NightlyCheck:
    """The installation (None if it cannot be read), and what is wrong; each text ends with the cure.

    `trouble` would prevent the next night, `renew` says how to renew an older timer; both are empty if all is well.
    `problems` begins with `trouble`, and goes on with the last nights.
    """

    nightly: Installed | None
    trouble: str
    problems: list[str]
    renew: str = ""


def check(state_dir: StateDir, timers: Timers, now: int, zone: tzinfo) -> NightlyCheck:
    obstacle = f"{state_dir.folder / 'installed.json'} is gone; run spotctl nightly install again"
    nightly = None
    try:
        nightly = state_dir.installed
    except BadRequest as error:
        obstacle = str(error)
    if nightly is None:
        return NightlyCheck(None, obstacle, [obstacle])
    obstacle = trouble(state_dir, nightly, timers)
    known = [*([obstacle] if obstacle else []), *problems(state_dir, nightly.hours, now, zone)]
    return NightlyCheck(nightly, obstacle, known, "" if obstacle else renewal(state_dir, nightly, timers))
