"""Converts errors of a cloud to errors of the provider contract, where the cloud's own code is not more exact."""

from __future__ import annotations

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
from spotctl.clouds.errors import LoginNeeded, NotFound, NotPermitted, ProviderError, Throttled, Unanswered

_MEANINGS: Final[dict[type[CloudError], type[ProviderError]]] = {
    MissingCredentials: LoginNeeded,
    AccessDenied: NotPermitted,
    MissingExtra: NotPermitted,
    RateLimited: Throttled,
    NoAnswer: Unanswered,
    UnknownResource: NotFound,
}


def meaning_of_kind(error: CloudError) -> type[ProviderError]:
    """The error of the provider contract for this kind of error."""
    return _MEANINGS.get(type(error), ProviderError)
