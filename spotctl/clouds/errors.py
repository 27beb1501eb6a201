"""How calls to a provider or a machine fail; each message names the market or machine and the way
out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    MissingExtra,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from pricing_data.units import MINUTE
from spotctl.home.errors import BadRequest, SpotctlError


class Scope(Enum):
    """How far a refusal reaches: within it, another order gets the same answer."""

    MACHINE = "machine"
    """This type of machine in this market."""
    TYPE = "type"
    """This type of machine in the whole region."""
    ZONE = "zone"
    REGION = "region"
    ACCOUNT = "account"
    """Whatever the account asks of this cloud for this job."""
    ORGANISATION = "organisation"
    """Rules that others have made for the account, which may differ by region."""
    MOMENT = "moment"
    """Nothing: the same call may succeed a little later."""


class ProviderError(SpotctlError):
    """Root of the errors of providers and links; the message names the market or machine and the
    way out.
    """

    def __init__(self, message: str, scope: Scope = Scope.MACHINE) -> None:
        super().__init__(message)
        self.scope = scope


class NoCapacity(ProviderError):
    """The market has no machine of this kind at this bid now. Another market may have one, or this
    one later.
    """


class QuotaReached(ProviderError):
    """The account may not have more of these; only its owner can raise the quota."""


class NotHere(ProviderError):
    """The account gets none in the error's `scope`, which is more than one market. Elsewhere it may
    get some.
    """


class NotYet(BadRequest):
    """The cloud does not know something, which may have been made a moment ago: the same call may
    succeed within `MADE_WITHIN`. After that it never does."""


AT_A_TIME: Final = 24
"""Checks of a cloud that are made at the same time, each with a connection of its own."""

MADE_WITHIN: Final = 2 * MINUTE
"""How long clouds take to know everywhere what was made
(https://github.com/hashicorp/terraform/issues/15341)."""


class Throttled(ProviderError):
    """Too many calls. The same call succeeds after a pause."""


class NotPermitted(ProviderError):
    """Credentials are missing, have expired or do not allow the call."""


class LoginNeeded(NotPermitted):
    """Credentials are missing, wrong or have expired. The same call succeeds once the user has
    signed in again.
    """


class NotFound(ProviderError):
    """Something does not exist (any more): the `ids`. The call was carried out for the others."""

    def __init__(self, message: str, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class Unanswered(ProviderError):
    """The call may or may not have been carried out. Repeat it with the same token, or list what
    exists.
    """


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
    """Some regions or clouds did not answer. `listed` has the items that the others listed, and
    `parts` are the beginnings of the ids that may be missing. This is an error, so that no caller
    mistakes a part for the whole. `failure` is the first one's error."""

    def __init__(self, failure: ProviderError, listed: Sequence[Any], parts: Sequence[str]) -> None:
        super().__init__(str(failure))
        self.failure: ProviderError = (
            failure.failure if isinstance(failure, PartlyListed) else failure
        )
        self.listed, self.parts = tuple(listed), tuple(parts)


class TokenTaken(ProviderError):
    """The token belongs to a different request. The caller has made a mistake, and nothing was
    created.
    """


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
    NotHere: ErrorAction.OTHER_MARKET,
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


class Refusal(NamedTuple):
    """A cloud's code, and its meaning: an error of the contract, whose action is the run's course,
    how far it reaches, the cure, and where the code is documented or was seen.

    With a `text`, only messages that match it are meant; without a code, any such message.
    """

    code: str
    kind: type[SpotctlError]
    scope: Scope
    cure: str = ""
    source: str = ""
    text: str = ""


def refused(
    table: Iterable[Refusal], code: str, problem: str, said: str, *, any_case: bool = False
) -> SpotctlError | None:
    """The error for a cloud's code and message, by the first row that fits; None: the table does
    not list it.

    `any_case` is for a cloud that does not always write a code in the same way.
    """
    for refusal in table:
        same = refusal.code.lower() == code.lower() if any_case else refusal.code == code
        if (same or not refusal.code) and re.search(refusal.text, said, re.IGNORECASE):
            error = refusal.kind(
                f"{problem.rstrip('.')}; {refusal.cure}" if refusal.cure else problem
            )
            if isinstance(error, ProviderError):
                error.scope = refusal.scope
            return error
    return None


def error_of_kind(error: CloudError, text: str) -> ProviderError:
    """The error of the provider contract for a cloud's error whose code is in no table."""
    kind = _MEANINGS.get(type(error))
    return UnknownRefusal(text, error.code) if kind is None else kind(text)


def error_of_call(table: Iterable[Refusal], error: CloudError) -> SpotctlError:
    """The error of the provider contract for a call that a cloud refused, by the cloud's table."""
    if (known := refused(table, error.code, error.problem, error.problem)) is not None:
        return known
    if isinstance(error, RequestRejected):
        return BadRequest(str(error))
    return error_of_kind(error, str(error))


@contextmanager
def in_contract(meaning: Callable[[CloudError], SpotctlError]) -> Iterator[None]:
    """Turns a cloud's errors into those of the provider contract."""
    try:
        yield
    except CloudError as error:
        raise meaning(error) from error


ApiRecord = Mapping[str, Any]
"""One record of an answer, as the JSON of an API gives it."""


class ApiCall(NamedTuple):
    """A call to a cloud, as error messages describe it: what is requested, and the permission that
    allows it.
    """

    what: str
    permission: str


def is_plain_http(endpoint: str | None) -> bool:
    """Whether a token sent to this endpoint could be read on the way; such endpoints are called
    without credentials.
    """
    return endpoint is not None and endpoint.lower().startswith("http://")


def checked_key(cloud: str, url: str, key: str | None, setup: str) -> str:
    """The user's key, for calls to this address. MissingCredentials: there is none, or it could be
    read on the way.
    """
    parts = urlsplit(url)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not is_here:
        raise MissingCredentials(
            f"{cloud}: the key would be sent in the open to {url}",
            f"set {cloud}_url to an https address",
        )
    if key is None:
        raise MissingCredentials(f"{cloud}: no API key is set", setup)
    return key


def may_succeed_later(error: Exception) -> bool:
    """Whether a failed HTTP request may be repeated: the server is busy or broken, or the
    connection was lost.
    """
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return (
            error.response.status_code == httpx.codes.TOO_MANY_REQUESTS
            or error.response.is_server_error
        )
    return isinstance(error, httpx.TransportError)


def first_line(error: BaseException, longest: int = 300) -> str:
    """The first line of an error's text, cut at `longest` characters: a proxy may answer with a
    whole page of HTML.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0].strip().rstrip(".")
    return line if len(line) <= longest else f"{line[:longest]}..."


def on_one_line(error: BaseException, longest: int = 300) -> str:
    """The whole text of an error without line breaks, cut at `longest` characters."""
    return " ".join(str(error).split())[:longest]


T = TypeVar("T")


def as_far_as_listed(call: Callable[[], Sequence[T]]) -> tuple[tuple[T, ...], PartlyListed | None]:
    """The items of a list as far as they could be listed, and the error if some could not; None if
    all were.
    """
    try:
        return tuple(call()), None
    except PartlyListed as error:
        return error.listed, error


def each(calls: Iterable[Callable[[], object]]) -> None:
    """Makes all calls, even if one fails, so that all machines end; then raises the first
    failure."""
    failures: list[SpotctlError] = []
    for call in calls:
        try:
            call()
        except SpotctlError as error:
            failures.append(error)
    if failures:
        raise failures[0]


class Answers:
    """The answers of clouds to a command that changes nothing there: it asks each question once.

    Threads that ask the same at the same time wait for one answer. An error is an answer, too: the
    SDKs have repeated what may succeed later. Unless they are `kept`, everything is asked again.
    """

    def __init__(self, *, kept: bool = True) -> None:
        self.kept, self._lock, self._asked = kept, Lock(), dict[Hashable, Future[Any]]()

    def of(self, question: Hashable, ask: Callable[[], T]) -> T:
        """The answer to a question, which `ask` gets."""
        if not self.kept:
            return ask()

        with self._lock:
            is_new = question not in self._asked
            answer: Future[T] = self._asked.setdefault(question, Future())

        if is_new:
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - those who wait get it, too
                answer.set_exception(error)

        return answer.result()


NOT_KEPT: Final = Answers(kept=False)


def with_given(defaults: T, **given: str | None) -> T:
    """Settings with the user's values; None keeps the default."""
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
