"""The role of machines: they may delete machines in the resource groups of the runs that have their identity.

The role is assigned for each group, and the assignment ends with the group: it reaches nothing else.
"""

from __future__ import annotations

import uuid
from typing import Final

from spotctl.clouds.azure.calls import AzureCalls, Operation
from spotctl.clouds.azure.permissions import MACHINE_ROLE
from spotctl.home.errors import BadRequest

_NAMES: Final = uuid.UUID("0f0c5b0e-7a86-4b7c-9c0e-5d1f6a3b2c11")
"""The namespace of the names of assignments, so that an assignment can be repeated."""


class RoleAssignments:
    """Assigns the role once for each group and identity of this process."""

    def __init__(self, calls: AzureCalls) -> None:
        self._calls = calls
        self._definition = ""
        self._assigned: set[tuple[str, str]] = set()

    def assign(self, group: str, identity: str) -> None:
        """Lets machines with this identity delete machines of a group. BadRequest: the role does not exist.

        Of an identity that does not exist, the order of the machines says so.
        """
        if (group, identity) in self._assigned:
            return
        known = self._calls.find(Operation.GET_IDENTITY, identity)
        if known is None:
            return
        principal = str(known["properties"]["principalId"])
        assignment = {
            "role_definition_id": self._definition_id(),
            "principal_id": principal,
            "principal_type": "ServicePrincipal",
        }
        name = str(uuid.uuid5(_NAMES, f"{group} {principal}"))
        self._calls.send(Operation.ASSIGN_ROLE, self._calls.group_id(group), name, assignment)
        self._assigned.add((group, identity))

    def _definition_id(self) -> str:
        if not self._definition:
            subscription = self._calls.session.subscription_id
            known = self._calls.listed(Operation.LIST_ROLES, subscription, filter=f"roleName eq '{MACHINE_ROLE}'")
            if not known:
                raise BadRequest(
                    f"the subscription has no role {MACHINE_ROLE}, which machines need to delete themselves: create it"
                    " from what spotctl doctor --policy azure-machines prints (az role definition create)"
                )
            self._definition = str(known[0]["id"])
        return self._definition
