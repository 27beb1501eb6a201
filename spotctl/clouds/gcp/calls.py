"""`GcpCalls`: the calls to Compute Engine, which raise the errors of the provider contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from pricing_data.errors import CloudError
from spotctl.clouds.errors import ApiCall, NotFound, PartlyListed, Unanswered
from spotctl.clouds.gcp import methods, names, refusals
from spotctl.clouds.gcp.history import failure_of, is_pending
from spotctl.clouds.gcp.methods import Method
from spotctl.clouds.gcp.session import GcpSession, UnreachedScopes

WAIT_SECONDS = 60.0
"""The longest wait for an operation. The run's loop must renew leases in between, and will ask again."""


class GcpCalls:
    """Answers are the SDK's messages. A missing resource raises NotFound, or is None where the method says so."""

    def __init__(self, session: GcpSession) -> None:
        self._session = session

    @property
    def host(self) -> str:
        """The host that answers."""
        return self._session.compute_host

    @cached_property
    def project(self) -> str:
        with _refused():
            return self._session.project

    def call(self, method: Method, what: str, **request: object) -> Any:  # noqa: ANN401  # the SDK's messages
        message = {"project": self.project, **request}
        with _refused():
            return self._session.answer(_described(method, what), method.service, method.name, message)

    def unless_missing(self, method: Method, what: str, **request: object) -> Any | None:  # noqa: ANN401  # the SDK's messages
        """The answer of the method; None if the resource does not exist."""
        try:
            return self.call(method, what, **request)
        except NotFound:
            return None

    def listed(self, method: Method, what: str, chosen: str) -> list[Any]:
        """All items that match a filter: all pages, or an error."""
        with _refused():
            pages = self._session.pages(_described(method, what), method.service, self._chosen(chosen))
            return [item for page in pages for item in page]

    def listed_everywhere(self, method: Method, what: str, chosen: str) -> list[Any]:
        """All items that match a filter, in all zones and regions. PartlyListed: some of these did not answer."""
        items: list[Any] = []
        with _refused():
            try:
                for item in self._session.scoped(_described(method, what), method.service, self._chosen(chosen)):
                    items.append(item)  # noqa: PERF402 - items listed before an error are kept
            except UnreachedScopes as error:
                parts = [names.machine_id(scope, "") for scope in error.scopes]
                raise PartlyListed(Unanswered(str(error)), items, parts) from error
        return items

    def _chosen(self, chosen: str) -> dict[str, object]:
        return {"project": self.project, "filter": chosen}

    def wait_for(self, operation: str, what: str, place: str | None = None) -> Any:  # noqa: ANN401  # the SDK's messages
        """Returns an operation of a zone, of a region, or without either once it has ended, even if it failed.

        Unanswered: it takes too long.
        """
        method, where = _waiting(place)
        give_up = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < give_up:
            answer = self.call(method, what, operation=operation, **where)
            if not is_pending(answer):
                return answer
        raise Unanswered(f"gcp: {what}: operation {operation} has not ended; try again later")

    def finish(self, operation: str, what: str, place: str | None = None) -> None:
        """Waits for an operation; raises the operation's error if it failed."""
        ended = self.wait_for(operation, what, place)
        if (failure := failure_of(ended)) is not None:
            raise refusals.of_operation(what, failure.code, failure.message)

    def remove(self, begin: Callable[[], Any], what: str, place: str | None = None) -> None:
        """Begins a deletion and waits for its end. A resource that does not exist counts as deleted."""
        with suppress(NotFound):
            self.finish(begin().name, what, place)


def _waiting(place: str | None) -> tuple[Method, dict[str, str]]:
    """The method that waits for an operation in a place, and the place as it takes it."""
    if place is None:
        return methods.WAIT_GLOBALLY, {}
    if names.is_zone(place):
        return methods.WAIT_IN_ZONE, {"zone": place}
    return methods.WAIT_IN_REGION, {"region": place}


def _described(method: Method, what: str) -> ApiCall:
    return ApiCall(what, " and ".join(method.permissions))


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except CloudError as error:
        raise refusals.of_call(error) from error
