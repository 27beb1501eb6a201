"""How errors of a cloud become errors of the provider contract, and how a run acts on each of these. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    MissingExtra,
    NoAnswer,
    RateLimited,
    UnknownResource,
)
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotPermitted,
    NotSent,
    PartlyListed,
    ProviderError,
    QuotaReached,
    Throttled,
    Unanswered,
    UnknownRefusal,
    Unusable,
)
from spotctl.home.errors import BadRequest, SpotctlError

_MEANINGS: Final[dict[type[CloudError], type[ProviderError]]] = {
    MissingCredentials: LoginNeeded,
    AccessDenied: NotPermitted,
    MissingExtra: NotPermitted,
    RateLimited: Throttled,
    NoAnswer: Unanswered,
    UnknownResource: NotFound,
}


class ErrorAction(Enum):
    """The reaction of a run to an error of a provider or of a machine's agent."""

    RETRY = "send the same call again"
    OTHER_MARKET = "rent elsewhere, and ask this market again later"
    STOP = "end the run: the same call never succeeds"
    STOP_IF_REPEATED = "end the run if the answer is the same once more"


_ACTIONS: Final[dict[type[SpotctlError], ErrorAction]] = {
    Throttled: ErrorAction.RETRY,
    Unanswered: ErrorAction.RETRY,
    NoCapacity: ErrorAction.OTHER_MARKET,
    QuotaReached: ErrorAction.OTHER_MARKET,
    NotFound: ErrorAction.OTHER_MARKET,
    PartlyListed: ErrorAction.OTHER_MARKET,
    NotPermitted: ErrorAction.STOP,
    BadRequest: ErrorAction.STOP,
    Unusable: ErrorAction.STOP,
    NotSent: ErrorAction.STOP,
}


def action_for(error: SpotctlError) -> ErrorAction:
    """The action for an error; errors that nothing is known of may pass, but not twice."""
    actions = (action for kind, action in _ACTIONS.items() if isinstance(error, kind))
    return next(actions, ErrorAction.STOP_IF_REPEATED)


def unknown_code(error: SpotctlError) -> str:
    """The code of an error that ends a run if it is repeated; empty for other errors."""
    if action_for(error) is not ErrorAction.STOP_IF_REPEATED:
        return ""
    return (error.code if isinstance(error, UnknownRefusal) else "") or type(error).__name__


def error_of_kind(error: CloudError, text: str) -> ProviderError:
    """The error of the provider contract for a cloud's error whose code is in no table."""
    kind = _MEANINGS.get(type(error))
    return UnknownRefusal(text, error.code) if kind is None else kind(text)
