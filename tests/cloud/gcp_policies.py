"""Compact placement policies of a simulated project: made, listed, removed, and checked when a
machine is created.

https://cloud.google.com/compute/docs/instances/placement-policies-overview
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud import compute_v1

from tests.cloud.gcp_fields import check_name, checked
from tests.cloud.gcp_project import HOST
from tests.servers.gcp import PROJECT, Refused
from tests.servers.loopback import Request

if TYPE_CHECKING:
    from tests.cloud.gcp import GcpServer

_WITHOUT = ("e2", "f1", "g1", "n1", "t2a", "t2d")
_COLLOCATED = "COLLOCATED"


class PlacementPolicies:
    """The policies by region and name."""

    def __init__(self, cloud: GcpServer) -> None:
        self._cloud, self._project = cloud, cloud.project
        self.held: dict[tuple[str, str], compute_v1.ResourcePolicy] = {}

    def insert(self, request: Request, path: dict[str, str], caller: str) -> compute_v1.Operation:
        call = checked(
            compute_v1.InsertResourcePolicyRequest, request, path, body="resource_policy_resource"
        )
        self._cloud._check(call, "compute.resourcePolicies.create", caller)
        policy = call.resource_policy_resource
        check_name(policy.name)
        if policy.group_placement_policy.collocation != _COLLOCATED:
            raise Refused(
                400,
                "Invalid value for field 'resource.groupPlacementPolicy.collocation'",
                "invalid",
            )
        link = f"{HOST}/projects/{PROJECT}/regions/{call.region}"
        with self._project.lock:
            if (known := self._project.repeated(call)) is not None:
                return known.message
            if (call.region, policy.name) in self.held:
                raise Refused(
                    409,
                    f"The resource 'resourcePolicies/{policy.name}' already exists",
                    "alreadyExists",
                )
            policy.region, policy.self_link = link, f"{link}/resourcePolicies/{policy.name}"
            self.held[call.region, policy.name] = policy
            where = f"regions/{call.region}/resourcePolicies/{policy.name}"
            return self._cloud._done("insert", where, call.region, caller, call)

    def list(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.ResourcePolicyAggregatedList:
        call = checked(compute_v1.AggregatedListResourcePoliciesRequest, request, path)
        self._cloud._check(call, "compute.resourcePolicies.list", caller)
        with self._project.lock:
            rows = [(region, one) for (region, _), one in self.held.items()]
        scopes, token = self._cloud._page(request, call, rows)
        lists = {
            f"regions/{one}": compute_v1.ResourcePoliciesScopedList(resource_policies=own)
            for one, own in scopes.items()
        }
        return compute_v1.ResourcePolicyAggregatedList(items=lists, next_page_token=token)

    def delete(self, request: Request, path: dict[str, str], caller: str) -> compute_v1.Operation:
        call = checked(compute_v1.DeleteResourcePolicyRequest, request, path)
        self._cloud._check(call, "compute.resourcePolicies.delete", caller)
        where = f"regions/{call.region}/resourcePolicies/{call.resource_policy}"
        with self._project.lock:
            if any(
                where in one.message.resource_policies and not one.deleted
                for one in self._project.held
            ):
                raise Refused(
                    400,
                    f"The resource '{where}' is used by an instance",
                    "resourceInUseByAnotherResource",
                )
            self._cloud._removed(self.held, (call.region, call.resource_policy))
            return self._cloud._done("delete", where, call.region, caller, call)

    def check(self, instance: Any, zone: str) -> None:  # noqa: ANN401  # the SDK's messages
        """Refuses a machine that is to be close to others as Compute Engine does."""
        region, series = (
            zone.rpartition("-")[0],
            instance.machine_type.rpartition("/")[2].partition("-")[0],
        )
        for where in instance.resource_policies:
            if (
                region,
                where.rpartition("/")[2],
            ) not in self.held or f"regions/{region}/" not in where:
                raise Refused(
                    400,
                    f"Invalid value for field 'resource.resourcePolicies': '{where}'",
                    "invalid",
                )
            if series in _WITHOUT:
                raise Refused(
                    400, f"Resource policies are not supported for machine type {series}", "invalid"
                )
            others = {
                one.zone
                for one in self._project.held
                if where in one.message.resource_policies and not one.deleted
            }
            if others - {zone}:
                raise Refused(400, "Collocated machines are in one zone", "invalid")
