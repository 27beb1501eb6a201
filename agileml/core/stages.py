"""The stage of a job, and the active nodes that it follows from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agileml.core.members import Members
from agileml.core.placement import Footprint
from agileml.policies.policy import NodesChanged, TrainingPolicy, TrainingReport, UseStage


@dataclass(slots=True)
class Stages:
    """The stage that the policy proposes. With `uneven`, every second node counts as faster than the node is."""

    policy: TrainingPolicy
    uneven: float = 0.0
    stage: int = 0
    footprint: Footprint = field(default_factory=lambda: Footprint((), ()))
    """The active nodes; the policy has seen them."""
    _seen: int = -1
    """The value of `members.changes` that the footprint was made from."""

    def observe_nodes(self, members: Members) -> list[str]:
        """Reports the active nodes to the policy, if they have changed; returns its reasons."""
        if self._seen == members.changes:
            return []
        self._seen = members.changes
        reliable, transient = members.active(reliable=True), members.active(reliable=False)
        self.footprint = Footprint(tuple(reliable), tuple(transient), self._speeds(members, reliable + transient))
        return self.observe(NodesChanged(len(reliable), len(transient)))

    def observe(self, report: TrainingReport) -> list[str]:
        """Accepts every proposal of the policy; returns the reasons of those that come with one, for the log."""
        self.policy, proposals = self.policy.observe(report)
        return [reason for proposal in proposals if (reason := self._accept(proposal))]

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"learned": self.policy.record()}

    def restore(self, record: Mapping[str, Any], members: Members) -> list[str]:
        """Takes over what the policy of an earlier controller has learned; returns its reasons."""
        self.policy, self._seen = self.policy.restored(record["learned"]), -1
        return self.observe_nodes(members)

    def _accept(self, proposal: UseStage) -> str:
        before, self.stage = self.stage, proposal.stage
        if not proposal.reason:
            return ""
        change = "stays" if self.stage == before else f"after stage {before}"
        return f"stage {self.stage} {change}: {proposal.reason}"

    def _speeds(self, members: Members, nodes: list[str]) -> dict[str, float]:
        if not self.uneven:
            return {}
        return {name: self.uneven / (1 - self.uneven) for name in nodes if members[name].rank % 2}
