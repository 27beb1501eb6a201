"""`RunGroups`: the resource groups that runs make, one for each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from spotctl.clouds.azure.calls import AzureCalls, Body, Operation
from spotctl.clouds.azure.names import GROUP_MARK, GROUP_TAG, checked, group_tags
from spotctl.clouds.errors import Throttled
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest

_DELETING: Final = "Deleting"


class RunGroups:
    """The groups of one subscription. `company` are the tags that the settings demand."""

    def __init__(self, calls: AzureCalls, company: Mapping[str, str]) -> None:
        self._calls, self._company = calls, company

    def listed(self, tags: Mapping[str, str]) -> Iterator[Body]:
        """The resource groups made by spotctl whose machines may have these tags."""
        mark = f"tagName eq '{GROUP_TAG}' and tagValue eq '{GROUP_MARK}'"
        for group in self._calls.pages(Operation.LIST_GROUPS, filter=mark):
            if _is_ours(group, group_tags(tags)):
                yield group

    def ensure(self, request: MachineRequest, group: str) -> None:
        """Makes the group of a run. BadRequest: a group of this name exists and is not of this run."""
        wanted = checked({**self._company, **group_tags(request.tags), GROUP_TAG: GROUP_MARK})
        existing = self._calls.find(Operation.GET_GROUP, group)
        if existing is None:
            body = {"location": request.market.region, "tags": wanted}
            self._calls.send(Operation.PUT_GROUP, group, body)
            return
        if existing["properties"]["provisioningState"] == _DELETING:
            raise Throttled(f"resource group {group} is being deleted; try again once it is gone")
        if not _is_ours(existing, group_tags(request.tags)):
            raise BadRequest(f"resource group {group} exists and was not made for this run; delete or rename it")


def _is_ours(group: Body, tags: Mapping[str, str]) -> bool:
    has: Mapping[str, str] = group.get("tags") or {}
    return has.get(GROUP_TAG) == GROUP_MARK and tags.items() <= has.items()
