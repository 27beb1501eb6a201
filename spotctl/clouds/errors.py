"""How calls to a provider or a machine fail; each message names the market or machine and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotctl.home.errors import SpotctlError


class ProviderError(SpotctlError):
    """Root of the errors of providers and links; the message names the market or machine and the way out."""


class NoCapacity(ProviderError):
    """The market has no machine of this kind at this bid now. Another market may have one, or this one later."""


class QuotaReached(ProviderError):
    """The account may not have more of these; only its owner can raise the quota."""


class Throttled(ProviderError):
    """Too many calls. The same call succeeds after a pause."""


class NotPermitted(ProviderError):
    """Credentials are missing, have expired or do not allow the call."""


class LoginNeeded(NotPermitted):
    """Credentials are missing, wrong or have expired. The same call succeeds once the user has signed in again."""


class NotFound(ProviderError):
    """Something does not exist (any more): the `ids`. The call was carried out for the others."""

    def __init__(self, message: str, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class Unanswered(ProviderError):
    """The call may or may not have been carried out. Repeat it with the same token, or list what exists."""


class UnknownRefusal(ProviderError):
    """A refusal that no table of the cloud lists; `code` is the cloud's own word for it."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Unusable(ProviderError):
    """A machine that answers will never work for the run, nor will another like it."""


class NotSent(ProviderError):
    """The call was not sent, because its run is to end."""


class PartlyListed(ProviderError):
    """Some regions or clouds did not answer. `listed` has the items that the others listed, and `parts` are the
    beginnings of the ids that may be missing. This is an error, so that no caller mistakes a part for the whole.
    `failure` is the first one's error."""

    def __init__(self, failure: ProviderError, listed: Sequence[Any], parts: Sequence[str]) -> None:
        super().__init__(str(failure))
        self.failure: ProviderError = failure.failure if isinstance(failure, PartlyListed) else failure
        self.listed, self.parts = tuple(listed), tuple(parts)


class TokenTaken(ProviderError):
    """The token belongs to a different request. The caller has made a mistake, and nothing was created."""
