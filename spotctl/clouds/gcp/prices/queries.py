"""The four queries of a fetch from Google Cloud."""

from collections.abc import Iterator
from typing import Any

from pricing_data.errors import RequestRejected, UnknownResource
from spotctl.clouds.errors import ApiCall
from spotctl.clouds.gcp.prices.records import Unsupported
from spotctl.clouds.gcp.session import GcpSession, checked_name

_COMPUTE_SERVICE = "services/6F81-5844-456A"
"""Compute Engine in the Cloud Billing catalog."""


def regions(session: GcpSession) -> list[str]:
    """Every region that the project sees."""
    call = ApiCall("list of regions", "compute.regions.list (in roles/compute.viewer)")
    pages = session.pages(call, "Regions", {"project": session.project})
    return sorted(region.name for page in pages for region in page)


def machine_types(session: GcpSession, region: str) -> Iterator[list[Any]]:
    """The machine types of a region, page by page and zone by zone; most appear once in every
    zone."""
    call = ApiCall(f"zones of region {region}", "compute.regions.get (in roles/compute.viewer)")
    answer = session.answer(
        call,
        "Regions",
        "get",
        {"project": session.project, "region": checked_name("region", region)},
    )

    for zone in (url.rsplit("/", 1)[-1] for url in answer.zones):
        call = ApiCall(
            f"machine types of zone {zone}", "compute.machineTypes.list (in roles/compute.viewer)"
        )
        yield from session.pages(call, "MachineTypes", {"project": session.project, "zone": zone})


# The SDK's messages are not annotated.
def capacity_history(session: GcpSession, region: str, machine_type: str) -> Any:  # noqa: ANN401
    """Spot prices and preemption rates of a machine type in a region.

    Raises `Unsupported` where the API rejects the machine type.
    """
    call = ApiCall(
        f"capacity history of {machine_type} in {region}",
        "compute.advice.capacityHistory (in roles/compute.viewer)",
    )
    instances = {"machine_type": machine_type, "scheduling": {"provisioning_model": "SPOT"}}
    request = {
        "project": session.project,
        "region": region,
        "capacity_history_request_resource": {
            "types": ["PRICE", "PREEMPTION"],
            "instance_properties": instances,
        },
    }

    try:
        return session.answer(call, "Advice", "capacity_history", request)
    except (RequestRejected, UnknownResource) as error:
        raise Unsupported(error.problem, "check the type", error.code) from error


def skus(session: GcpSession) -> Iterator[Any]:
    """All entries of Compute Engine's public price list, in US dollars."""
    call = ApiCall(
        "price list of Compute Engine",
        "the Cloud Billing API (cloudbilling.googleapis.com), enabled",
    )
    return session.price_list(call, _COMPUTE_SERVICE)
