"""Compact placement policies: the machines of a gang next to each other, for a fast network between them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from spotctl.clouds.base import MachineRequest, Resource
from spotctl.clouds.errors import NotFound
from spotctl.clouds.gcp import methods, names
from spotctl.clouds.gcp.calls import GcpCalls
from spotctl.clouds.gcp.refusals import NameTaken
from spotctl.clouds.tags import INTENT_TAG

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
    body = policy(name, {key: value for key, value in request.tags.items() if key != INTENT_TAG})
    what = f"{KIND} {name}"
    # An id that Google knows would be answered with the policy that was removed since; the name is never taken twice.
    with suppress(NameTaken):
        operation = calls.call(
            methods.INSERT_POLICY, what, region=region, resource_policy_resource=body, request_id=str(uuid.uuid4())
        )
        calls.finish(operation.name, what, region)


def policy(name: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """The body. Policies have no labels, so the description identifies the run."""
    described = json.dumps(dict(tags), sort_keys=True)
    return {"name": name, "description": described, "group_placement_policy": {"collocation": "COLLOCATED"}}


def policy_of(item: Any) -> Resource | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """A policy that spotctl made; None for any other."""
    try:
        tags = json.loads(item.description)
    except ValueError:
        return None
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        return None
    region = item.region.rpartition("/")[2]
    return Resource(KIND, f"{names.CLOUD}:{region}:{item.name}", tags, region)
