"""How errors of a cloud become errors of the provider contract, and what a run does about each of these. Pure."""

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


class Course(Enum):
    """The reaction of a run to an error of a provider or of a machine's agent."""

    RETRY = "send the same call again"
    OTHER_MARKET = "rent elsewhere, and ask this market again later"
    STOP = "end the run: the same call never succeeds"
    STOP_IF_REPEATED = "end the run if the answer is the same once more"


_COURSES: Final[dict[type[SpotctlError], Course]] = {
    Throttled: Course.RETRY,
    Unanswered: Course.RETRY,
    NoCapacity: Course.OTHER_MARKET,
    QuotaReached: Course.OTHER_MARKET,
    NotFound: Course.OTHER_MARKET,
    PartlyListed: Course.OTHER_MARKET,
    NotPermitted: Course.STOP,
    BadRequest: Course.STOP,
    Unusable: Course.STOP,
    NotSent: Course.STOP,
}


def course_of(error: SpotctlError) -> Course:
    """The course for an error; errors that nothing is known of may pass, but not twice."""
    courses = (course for kind, course in _COURSES.items() if isinstance(error, kind))
    return next(courses, Course.STOP_IF_REPEATED)


def unknown_code(error: SpotctlError) -> str:
    """The code of an error that ends a run if it is repeated; empty for other errors."""
    if course_of(error) is not Course.STOP_IF_REPEATED:
        return ""
    return (error.code if isinstance(error, UnknownRefusal) else "") or type(error).__name__


def error_of_kind(error: CloudError, text: str) -> ProviderError:
    """The error of the provider contract for a cloud's error whose code is in no table."""
    kind = _MEANINGS.get(type(error))
    return UnknownRefusal(text, error.code) if kind is None else kind(text)
