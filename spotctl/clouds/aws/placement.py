"""Cluster placement groups: the machines of a gang next to each other, for a fast network between them."""

from __future__ import annotations

from spotctl.clouds.aws.calls import AwsCalls
from spotctl.clouds.aws.images import Ec2Hardware
from spotctl.clouds.aws.labels import GROUP, group_name, tag_list, tags_of_run
from spotctl.clouds.aws.refusals import code_of
from spotctl.clouds.aws.settings import AwsMachineSettings
from spotctl.clouds.errors import NotFound, ProviderError
from spotctl.clouds.provider import MachineRequest


class PlacementGroups:
    """Makes the group of a run in a zone when its first machine there is bought. It caches only to save calls."""

    def __init__(self, calls: AwsCalls, settings: AwsMachineSettings) -> None:
        self._calls, self._settings = calls, settings
        self._made = set[tuple[str, str]]()

    def ensure(self, request: MachineRequest, hardware: Ec2Hardware) -> str:
        """The name of the group. NotFound: machines of this type cannot be in one."""
        market = request.market
        if not hardware.can_cluster:
            raise NotFound(
                f"{market}: EC2 puts no {market.instance_type} into a cluster placement group (resources: {{placement:"
                " close}); name other types"
            )
        # A group is in one zone as long as it has machines.
        name = f"{group_name(request)}-{market.zone}"
        if (market.region, name) not in self._made:
            self._make(request, name)
            self._made.add((market.region, name))
        return name

    def forget(self) -> None:
        """Makes groups again: they may have been removed."""
        self._made.clear()

    def _make(self, request: MachineRequest, name: str) -> None:
        tags = {**self._settings.tags, **tags_of_run(request), GROUP: name}
        specification = [{"ResourceType": "placement-group", "Tags": tag_list(tags)}]
        try:
            self._calls.ec2(
                request.market.region,
                "CreatePlacementGroup",
                str(request.market),
                GroupName=name,
                Strategy="cluster",
                TagSpecifications=specification,
            )
        except ProviderError as error:
            # The run has made it before, in this process or in another one.
            if code_of(error) != "InvalidPlacementGroup.Duplicate":
                raise
