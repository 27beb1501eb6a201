"""When a job starts, or continues after losing all nodes that could hold the model, and which nodes it waits for."""

from dataclasses import dataclass

from agileml.core.events import ControllerSettings
from agileml.core.members import Member, Members, NodePhase

_PRESENT = (NodePhase.LOADING, NodePhase.READY, NodePhase.ACTIVE)


@dataclass(slots=True)
class StartUp:
    """Waits for the nodes of the first epoch; `since` is when this controller began to wait."""

    settings: ControllerSettings
    since: float | None = None

    def overdue(self, members: Members, now: float) -> str:
        """Why a job that may lack nodes ends before its first epoch; empty if it does not."""
        if not self.settings.nodes.may_lack_nodes:
            return ""
        if self.since is None:
            self.since = now
        longest, missing = self.settings.nodes.startup_timeout, shortage(members, self.settings)
        if not missing or now - self.since <= longest:
            return ""
        return f"training did not start within {longest:g} s: {missing}"


def can_start(members: Members, settings: ControllerSettings, epoch: int) -> bool:
    """Whether there is a node that can hold the model and, before the first epoch, all others are there and have
    loaded."""
    loaded = [member for member in _present(members) if member.phase is not NodePhase.LOADING]
    keeps = any(member.reliable or not settings.reliable for member in loaded)
    return keeps and (epoch > 0 or all_loaded(members, settings))


def all_loaded(members: Members, settings: ControllerSettings) -> bool:
    """Whether the nodes of the first epoch are there and have loaded, of whatever kind."""
    loading = any(member.phase is NodePhase.LOADING for member in _present(members))
    return not (loading or _absent(members, settings))


def shortage(members: Members, settings: ControllerSettings) -> str:
    """Which nodes a job that has not started is waiting for; empty if all have joined and some are still loading."""
    here = _present(members)
    reliable = sum(member.reliable for member in here)
    missing = [f"{settings.reliable - reliable} reliable"] if reliable < settings.reliable else []
    transient = _absent(members, settings) - max(0, settings.reliable - reliable)
    missing += [f"{transient} transient"] if transient > 0 else []
    if not missing or ((reliable or not settings.reliable) and not _absent(members, settings)):
        return ""
    names = ", ".join(member.name for member in here) or "none"
    asked = f"{settings.reliable}+{settings.transient}"
    joined = f"{reliable}+{len(here) - reliable}"
    return f"of {asked} nodes, {joined} have joined ({names}); missing: {' and '.join(missing)}"


def _absent(members: Members, settings: ControllerSettings) -> int:
    """Nodes that have not joined. If the fleet replaces nodes, those that have left since are not expected again."""
    came = len(_present(members)) if settings.nodes.needs_all else members.joined
    return max(0, settings.reliable + settings.transient - came)


def _present(members: Members) -> list[Member]:
    return [member for member in members if member.phase in _PRESENT]
