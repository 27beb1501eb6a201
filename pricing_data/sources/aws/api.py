"""The one door to boto3: a session that threads share, and clients that each serve one task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from pricing_data.errors import SourceUnavailable
from pricing_data.sources.aws.failures import failures_of
from pricing_data.sources.aws.settings import AwsSettings

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.client import BaseClient
    from stamina import RetryingCaller

Service = Literal["ec2", "pricing"]
Page = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Client:
    """One service in one region, as one task uses it. `region` is the one asked about, and named in errors."""

    service: Service
    region: str
    sdk: BaseClient
    retrying: RetryingCaller

    def pages(self, operation: str, holding: str, **arguments: object) -> Iterator[Page]:
        """The answers of an operation, each holding what it promises, for as long as there is a next one."""
        from botocore.parsers import ResponseParserError

        action = f"{self.service}:{operation}"
        more: dict[str, object] = {}
        while True:
            with failures_of(self.region, action):
                page = self.retrying.on(ResponseParserError)(self._ask, operation, holding, {**arguments, **more})
            yield page
            if not page.get("NextToken"):
                return
            if page["NextToken"] == more.get("NextToken"):
                raise SourceUnavailable(f"aws/{self.region}: {action} goes in circles; fetch again later")
            more = {"NextToken": page["NextToken"]}

    def _ask(self, operation: str, holding: str, arguments: dict[str, object]) -> Page:
        """One answer. botocore takes one whose end is missing for whole; it parses badly, or to nothing."""
        from botocore import xform_name
        from botocore.parsers import ResponseParserError

        page: Page = getattr(self.sdk, xform_name(operation))(**arguments)
        # A proxy's login page parses, too; taken for "no rows", it would pass for complete.
        if holding not in page:
            raise ResponseParserError(f"it holds no {holding}")
        return page


@dataclass
class AwsApi:
    """Makes clients. boto3 is imported, and credentials are looked for, when the first one is needed."""

    settings: AwsSettings
    _session: Session | None = field(default=None, init=False)
    # Neither making a session nor making clients from one is safe in two threads at once; using clients is.
    _lock: Lock = field(default_factory=Lock, init=False)

    @contextmanager
    def client(self, service: Service, region: str, endpoint_region: str = "") -> Iterator[Client]:
        """A client for as long as the `with` block; `endpoint_region` where the service lives elsewhere."""
        with failures_of(region, "signing in"), self._lock:
            sdk = self._make(service, endpoint_region or region)
        with closing(sdk):
            yield Client(service, region, sdk, self.settings.retrying())

    def sign_in(self) -> str:
        """Find the credentials, once for all tasks; returns the region that the person has configured."""
        from botocore.exceptions import NoCredentialsError

        with failures_of("-", "signing in"), self._lock:
            session = self._opened()
            # Where there are none, each client would look again, and wait for a metadata server that does not answer.
            if session.get_credentials() is None:
                raise NoCredentialsError
            return session.region_name

    def _make(self, service: Service, region: str) -> BaseClient:
        from botocore.config import Config

        timeout = self.settings.timeout_seconds
        config = Config(
            connect_timeout=timeout,
            read_timeout=timeout,
            retries={"total_max_attempts": self.settings.max_attempts, "mode": "standard"},
        )
        try:
            return self._opened().client(service, region_name=region, config=config)
        except ValueError as error:
            raise SourceUnavailable(
                f"aws/{region}: {error}; correct AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_{service.upper()} or the region"
            ) from error

    def _opened(self) -> Session:
        from boto3.session import Session
        from botocore.session import get_session

        if self._session is None:
            core = get_session()
            # botocore would fail the whole page over one time it cannot parse; as text, only its record is lost.
            core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
            if core.get_config_variable("region") is None:
                # Taking on a role needs a region, though any will do.
                core.set_config_variable("region", "us-east-1")
            self._session = Session(botocore_session=core)
        return self._session
