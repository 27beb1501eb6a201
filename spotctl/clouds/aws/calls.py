"""`AwsCalls`: calls to AWS in any region, which raise the errors of the provider contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TypeVar
from urllib.parse import urlsplit

from spotctl.clouds.aws.records import machine_id
from spotctl.clouds.aws.refusals import as_contract
from spotctl.clouds.aws.rows import Row
from spotctl.clouds.aws.session import AwsAnswer, AwsClient, AwsSession, Service
from spotctl.clouds.errors import LoginNeeded, PartlyListed, ProviderError

T = TypeVar("T")

_REGIONS_AT_A_TIME = 8
# The largest page size of each operation that accepts a page size together with filters.
_PAGE_ROWS = {
    "DescribeInstances": 1000,
    "DescribeLaunchTemplates": 200,
    "DescribeNetworkInterfaces": 1000,
    "DescribeSecurityGroups": 1000,
    "DescribeSpotInstanceRequests": 1000,
    "DescribeVolumes": 1000,
}


class AwsCalls:
    """Clients of services and regions, opened when first needed and shared by threads, as botocore allows."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._open, self._clients = ExitStack(), dict[tuple[Service, str], AwsClient]()
        self._lock = Lock()

    def ec2(self, region: str, operation: str, about: str = "", **arguments: object) -> AwsAnswer:
        """EC2's answer to one call; `about` names the purpose of the call in errors."""
        return self.call("ec2", region, operation, about, **arguments)

    def call(self, service: Service, region: str, operation: str, about: str = "", **arguments: object) -> AwsAnswer:
        """The answer of any service to one call."""
        with self._answered(about):
            return self._client(service, region).call(operation, **arguments)

    def rows(self, service: Service, region: str, operation: str, holding: str, **arguments: object) -> list[Row]:
        """The items under `holding` on all pages of an operation."""
        with self._answered():
            pages = self._client(service, region).pages(operation, holding, **arguments)
            return [row for page in pages for row in page[holding]]

    def described(
        self, region: str, operation: str, holding: str, filters: Mapping[str, Sequence[str]], **arguments: object
    ) -> list[Row]:
        """The items that EC2 lists under `holding` and that pass all filters."""
        asked = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        size = {"MaxResults": _PAGE_ROWS[operation]} if operation in _PAGE_ROWS else {}
        return self.rows("ec2", region, operation, holding, Filters=asked, **size, **arguments)

    def endpoint(self, region: str) -> str:
        """The host that answers calls to EC2 in a region."""
        return urlsplit(self._client("ec2", region).sdk.meta.endpoint_url).hostname or ""

    def close(self) -> None:
        """Closes all connections; the next call opens new ones."""
        with self._lock:
            self._open.close()
            self._clients.clear()

    @contextmanager
    def _answered(self, about: str = "") -> Iterator[None]:
        """Turns AWS's errors into those of the provider contract."""
        try:
            with as_contract(about):
                yield
        except LoginNeeded:
            # Other threads may still use the old clients, which `close` closes.
            with self._lock:
                self._clients.clear()
            self._session.forget_login()
            raise

    def _client(self, service: Service, region: str) -> AwsClient:
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self._open.enter_context(self._session.client(service, region))
            return self._clients[service, region]


def in_each(regions: Sequence[str], call: Callable[[str], Sequence[T]]) -> list[T]:
    """Calls all regions in parallel and joins their answers. PartlyListed: some failed."""
    if len(regions) < 2:
        return [item for region in regions for item in call(region)]

    def attempt(region: str) -> Sequence[T] | ProviderError:
        try:
            return call(region)
        except ProviderError as error:
            return error

    pool = ThreadPoolExecutor(_REGIONS_AT_A_TIME, "aws-region")
    try:
        answers = dict(zip(regions, pool.map(attempt, regions), strict=True))
    finally:
        # After Ctrl-C, nobody waits for a region that does not answer.
        pool.shutdown(wait=False, cancel_futures=True)
    failures = {region: answer for region, answer in answers.items() if isinstance(answer, ProviderError)}
    listed = [item for answer in answers.values() if not isinstance(answer, ProviderError) for item in answer]
    if not failures:
        return listed
    first = next(iter(failures.values()))
    if len(failures) == len(regions):
        raise first
    raise PartlyListed(first, listed, [machine_id(region, "") for region in failures]) from first
