"""How far refusals reach: the rows of the clouds' tables, and published refusals of new accounts
and companies.
"""

from __future__ import annotations

from functools import partial

import pytest
from botocore.exceptions import ClientError

from spotctl.clouds.aws import calls as aws
from spotctl.clouds.aws.session import translated
from spotctl.clouds.azure import calls as azure
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    ProviderError,
    QuotaReached,
    Refusal,
    Scope,
    Throttled,
    TokenTaken,
    Unanswered,
    in_contract,
)
from spotctl.clouds.gcp import calls as gcp
from spotctl.home.errors import BadRequest, SpotctlError

ROWS = (*aws.REFUSALS, *azure.REFUSALS, *gcp.IN_DETAIL, *gcp.REFUSALS, *gcp.RESERVATION_REFUSALS)
MACHINE, TYPE, ZONE, REGION, ACCOUNT, ORGANISATION, MOMENT = Scope
OWNERS = {MACHINE, ACCOUNT, ORGANISATION}
POSSIBLE = {
    NoCapacity: {MACHINE, ZONE, REGION},
    NotFound: {MACHINE},
    NotHere: {ZONE, REGION, ORGANISATION},
    QuotaReached: {MACHINE, TYPE, REGION, ACCOUNT},
    NotPermitted: OWNERS,
    LoginNeeded: {ACCOUNT},
    BadRequest: {ACCOUNT},
    Throttled: {MOMENT},
    Unanswered: {MOMENT},
    NotYet: {MOMENT},
    TokenTaken: {MACHINE},
    gcp.NameTaken: {MACHINE},
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code}-{row.text[:20]}")
def test_the_scope_of_a_row_fits_the_course_of_a_run(row: Refusal) -> None:
    assert row.scope in POSSIBLE[row.kind]
    assert row.source.startswith(("https://", "learn.microsoft.com/"))


def of_aws(code: str, words: str) -> SpotctlError:
    answer = {
        "Error": {"Code": code, "Message": words},
        "ResponseMetadata": {"HTTPStatusCode": 403},
    }
    with (
        pytest.raises(SpotctlError) as caught,
        in_contract(partial(aws.error_of, about="m")),
        translated("us-east-1", "ec2:RunInstances"),
    ):
        raise ClientError(answer, "RunInstances")  # type: ignore[arg-type]
    return caught.value


def of_azure(code: str, words: str) -> SpotctlError:
    return azure.of_deployment(code, f"m: Azure refused all 1 machines: {code} {words}")


of_gcp = partial(gcp.of_operation, "m")

SCP = (
    "You are not authorized to perform this operation. User: arn:aws:iam::1:user/u is not "
    "authorized to perform:"
    " ec2:RunInstances on resource: arn:aws:ec2:us-east-1:1:instance/* with an explicit deny in a "
    "service control policy"
)
FREE = (
    "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance "
    "types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'."
)
PROFILE = (
    "Value (spotctl) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance "
    "Profile name"
)
OUTSIDE = (
    "Constraint constraints/compute.vmExternalIpAccess violated for project 1. Add instance p/i to "
    "the constraint"
)
LOCATION = (
    "Location ZONE:us-central1-a violates constraint constraints/gcp.resourceLocations on the "
    "resource p/i"
)
SHIELDED = "Constraint constraints/compute.requireShieldedVm violated for project projects/p."
ADDRESSES = "Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 4.0 in region us-central1."
ABSENT = "The resource 'projects/p/serviceAccounts/{}' of type 'serviceAccount' was not found."
DEFAULT = ABSENT.format("1-compute@developer.gserviceaccount.com")
NEW = ABSENT.format("spotctl-machines@p.iam.gserviceaccount.com")
PD = "[pd-balanced] features are not compatible for creating instance."
PD_TYPE = (
    "Invalid value for field 'd': pd-balanced disk type cannot be used by c3-standard-192-metal "
    "machine type."
)
BEST = "Resource 'm' was disallowed by Azure: This policy maintains a set of best available regions"
STATIC = (
    "Cannot create more than 3 public IP addresses with static allocation method for this "
    "subscription in this region."
)
LEGAL = (
    "User failed validation to purchase resources. Error message: 'Legal terms have not been "
    "accepted for this item'"
)
PAID, TYPES = "upgrade the plan", "free-tier-eligible"


@pytest.mark.parametrize(
    ("error", "kind", "scope", "cure"),
    [
        (
            of_aws("UnauthorizedOperation", SCP),
            NotHere,
            ORGANISATION,
            "administers the AWS organisation",
        ),
        (of_aws("InvalidParameterCombination", FREE), NotPermitted, ACCOUNT, PAID),
        (of_aws("InvalidParameterCombination", FREE), NotPermitted, ACCOUNT, TYPES),
        (of_aws("InvalidParameterValue", PROFILE), NotYet, None, "2 minutes"),
        (
            of_aws("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
            QuotaReached,
            REGION,
            "quota",
        ),
        (of_aws("InvalidAvailabilityZone", "no"), NotHere, ZONE, "zone"),
        (of_aws("InsufficientAddressCapacity", "no"), NoCapacity, REGION, "address"),
        (of_gcp("conditionNotMet", OUTSIDE), NotPermitted, ORGANISATION, "public_ip = false"),
        (of_gcp("CONDITION_NOT_MET", OUTSIDE), NotPermitted, ORGANISATION, "public_ip = false"),
        (of_gcp("conditionNotMet", LOCATION), NotHere, REGION, "name others under regions"),
        (of_gcp("conditionNotMet", SHIELDED), NotPermitted, ORGANISATION, "organization policy"),
        (of_gcp("QUOTA_EXCEEDED", ADDRESSES), QuotaReached, REGION, "public_ip = false"),
        (of_gcp("RESOURCE_NOT_FOUND", DEFAULT), BadRequest, None, "set service_account in [gcp]"),
        (
            of_gcp("SERVICE_ACCOUNT_NOT_FOUND", DEFAULT),
            BadRequest,
            None,
            "set service_account in [gcp]",
        ),
        (of_gcp("RESOURCE_NOT_FOUND", NEW), NotYet, None, "2 minutes"),
        (of_gcp("invalidUsage", PD), NotFound, MACHINE, "no such disks"),
        (of_gcp("invalid", PD_TYPE), NotFound, MACHINE, "no such disks"),
        (
            of_gcp("UNSUPPORTED_OPERATION", "Spot VM not supported for machine type m3"),
            NotFound,
            MACHINE,
            "not sold",
        ),
        (of_azure("RequestDisallowedByAzure", BEST), NotHere, REGION, "name others under regions"),
        (
            of_azure(
                "AvailabilityZoneNotSupported", "The zone(s) '3' for resource is not supported."
            ),
            NotHere,
            ZONE,
            "",
        ),
        (of_azure("InvalidAvailabilityZone", "no"), NotHere, ZONE, "other zones"),
        (of_azure("ResourceTypeNotSupportAvailabilityZones", "no"), NotHere, ZONE, "other zones"),
        (
            of_azure("OperationNotAllowed", "Azure Spot is not supported for subscription."),
            QuotaReached,
            ACCOUNT,
            "free",
        ),
        (
            of_azure("StaticPublicIPCountLimitReached", STATIC),
            QuotaReached,
            REGION,
            "public_ip = false",
        ),
        (of_azure("PublicIPCountLimitReached", "no"), QuotaReached, REGION, "Public IP Addresses"),
        (
            of_azure("ResourcePurchaseValidationFailed", LEGAL),
            NotPermitted,
            ACCOUNT,
            "az vm image terms accept",
        ),
        (of_azure("BadRequest", LEGAL), NotPermitted, ACCOUNT, "az vm image terms accept"),
        (
            of_azure("PrincipalNotFound", "Principal p does not exist in the directory d."),
            NotYet,
            None,
            "2 minutes",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, SpotctlError) else None,
)
def test_a_published_refusal_says_what_cures_it(
    error: SpotctlError, kind: type[SpotctlError], scope: Scope | None, cure: str
) -> None:
    assert type(error) is kind
    assert cure in str(error)
    assert scope is None or (isinstance(error, ProviderError) and error.scope is scope)


def test_aws_s_own_reason_is_shown_and_what_people_cannot_read_is_not() -> None:
    shown = str(of_aws("UnauthorizedOperation", SCP))
    assert "explicit deny in a service control policy" in shown
    assert "doctor --policy" not in shown
    coded = "You are not authorized. Encoded authorization failure message: 8sJ2kQp9"
    said = str(of_aws("UnauthorizedOperation", coded))
    assert "You are not authorized; spotctl doctor --policy aws" in said
    assert "8sJ2k" not in said
