"""The action of a run after each error that a cloud or a machine may answer with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pricing_data.errors import CloudError, NoAnswer, RequestRejected
from spotctl.clouds.aws import calls as aws
from spotctl.clouds.azure import calls as azure
from spotctl.clouds.errors import (
    ErrorAction,
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotSent,
    NotYet,
    PartlyListed,
    ProviderError,
    QuotaReached,
    Throttled,
    TokenTaken,
    Unanswered,
    UnknownRefusal,
    Unusable,
    action_for,
    unknown_code,
)
from spotctl.clouds.gcp import calls as gcp
from spotctl.clouds.remote.ssh import HostKeyDiffers, StepFailed
from spotctl.home.errors import BadRequest, SpotctlError

ACTIONS = {
    NoCapacity: ErrorAction.OTHER_MARKET,
    QuotaReached: ErrorAction.OTHER_MARKET,
    NotFound: ErrorAction.OTHER_MARKET,
    NotHere: ErrorAction.OTHER_MARKET,
    Throttled: ErrorAction.RETRY,
    Unanswered: ErrorAction.RETRY,
    StepFailed: ErrorAction.RETRY,
    NotPermitted: ErrorAction.STOP,
    LoginNeeded: ErrorAction.STOP,
    HostKeyDiffers: ErrorAction.STOP,
    NotYet: ErrorAction.STOP,
    BadRequest: ErrorAction.STOP,
    Unusable: ErrorAction.STOP,
    NotSent: ErrorAction.STOP,
    TokenTaken: ErrorAction.STOP_IF_REPEATED,
    gcp.NameTaken: ErrorAction.STOP_IF_REPEATED,
    ProviderError: ErrorAction.STOP_IF_REPEATED,
}
EXAMPLES = {
    r"max price .* is lower than the current spot price": "max price 1 is lower than the current spot price 2",
    r"capacity ?reservation": "the capacity reservation group has no such size",
    r"\bspot\b|low.?priority": "Azure Spot is not supported",
    r"free (trial|account|subs)|student|offer": "not for this offer",
}


def kinds() -> Iterator[tuple[str, type[SpotctlError]]]:
    """Every code of the three tables, and the error that its cloud's adapter raises for it."""
    for meaning in aws.REFUSALS:
        yield meaning.code, type(aws.error_of(RequestRejected("no", code=meaning.code)))
        assert meaning.kind in ACTIONS
    for row in azure.REFUSALS:
        words = EXAMPLES.get(row.text, row.text.partition("|")[0])
        yield row.code, type(azure.of_deployment(row.code, words))
    for listed in gcp.REFUSALS:
        yield listed.code, type(gcp.of_call(RequestRejected("no", code=listed.code)))
        yield listed.code, type(gcp.of_operation("creation", listed.code, "no"))


def test_every_code_of_every_table_has_an_action() -> None:
    codes = list(kinds())
    assert len(codes) > 200
    unclear = [
        code for code, kind in codes if action_for(kind("no")) is ErrorAction.STOP_IF_REPEATED
    ]
    assert {code for code in unclear if "lready" not in code and "ALREADY" not in code} == {
        "IdempotentParameterMismatch",
        "IdempotentInstanceTerminated",
    }


@pytest.mark.parametrize(("kind", "action"), ACTIONS.items(), ids=str)
def test_each_error_of_the_contract_has_its_action(
    kind: type[SpotctlError], action: ErrorAction
) -> None:
    assert action_for(kind("no")) is action
    assert bool(unknown_code(kind("no"))) is (action is ErrorAction.STOP_IF_REPEATED)


def test_a_part_of_a_list_is_no_reason_to_end() -> None:
    assert (
        action_for(PartlyListed(Throttled("slow down"), (), ("aws:",))) is ErrorAction.OTHER_MARKET
    )


@pytest.mark.parametrize(
    "error",
    [
        aws.error_of(RequestRejected("no", code="MoonIsFull")),
        azure.of_deployment("MoonIsFull", "no"),
        gcp.of_call(CloudError("no", code="MoonIsFull")),
        gcp.of_operation("creation", "MoonIsFull", "no"),
    ],
)
def test_a_code_in_no_table_is_told_apart_from_others(error: SpotctlError) -> None:
    assert isinstance(error, UnknownRefusal)
    assert (action_for(error), unknown_code(error)) == (ErrorAction.STOP_IF_REPEATED, "MoonIsFull")


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (
            aws.error_of(
                RequestRejected("no", code="AuthFailure.ServiceLinkedRoleCreationNotPermitted")
            ),
            ErrorAction.STOP,
        ),
        (
            aws.error_of(RequestRejected("no", code="EncryptedVolumesNotSupported")),
            ErrorAction.OTHER_MARKET,
        ),
        (
            azure.of_deployment("BadRequest", "the size cannot boot Hypervisor Generation '2'"),
            ErrorAction.OTHER_MARKET,
        ),
        (gcp.of_operation("creation", "INTERNAL_ERROR", "no"), ErrorAction.OTHER_MARKET),
        (aws.error_of(NoAnswer("no", code="Invented")), ErrorAction.RETRY),
    ],
)
def test_what_never_passes_is_not_sent_again(error: SpotctlError, action: ErrorAction) -> None:
    assert action_for(error) is action
