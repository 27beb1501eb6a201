"""Compact placement policies: the machines of a gang next to each other, for a fast network between them."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from spotctl.clouds.errors import NotFound
from spotctl.clouds.gcp import methods, names
from spotctl.clouds.gcp.calls import GcpCalls
from spotctl.clouds.gcp.labels import described, description_of
from spotctl.clouds.gcp.refusals import NameTaken
from spotctl.clouds.provider import MachineRequest, Resource
from spotctl.home.installation import INTENT_TAG

KIND = "placement policy"
_NEVER_CLOSE = frozenset("e2 f1 g1 n1 t2a t2d".split())
"""Series that no compact policy takes: https://cloud.google.com/compute/docs/instances/placement-policies-overview"""


def check_type(request: MachineRequest) -> None:
    """NotFound: machines of this type cannot be placed close together."""
    name = request.market.instance_type
    if request.close and name.partition("-")[0] in _NEVER_CLOSE:
        raise NotFound(
            f"{request.market}: Google Cloud gives no {name} a compact placement policy (resources: {{placement:"
            " close}); name other types"
        )


def ensure_policy(calls: GcpCalls, request: MachineRequest, scope: str, zone: str) -> None:
    """Makes the policy of a run in a zone, unless the run has made it before."""
    name, region = names.placement_policy(scope, zone), names.region_of(zone)
    # Policies have no labels.
    tags = description_of({key: value for key, value in request.tags.items() if key != INTENT_TAG})
    body = {"name": name, "description": tags, "group_placement_policy": {"collocation": "COLLOCATED"}}
    what = f"{KIND} {name}"
    # An id that Google knows would be answered with the policy that was removed since; the name is never taken twice.
    with suppress(NameTaken):
        operation = calls.call(
            methods.INSERT_POLICY, what, region=region, resource_policy_resource=body, request_id=str(uuid.uuid4())
        )
        calls.finish(operation.name, what, region)


def policy_of(item: Any) -> Resource | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """A policy that spotctl made; None for any other."""
    if (tags := described(item.description)) is None:
        return None
    region = item.region.rpartition("/")[2]
    return Resource(KIND, f"{names.CLOUD}:{region}:{item.name}", tags, region)
