"""The door to Azure's SDKs: what needs an account, its credentials, its errors. Imported on first use."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.resourcegraph import ResourceGraphClient
from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

from pricing_data.errors import AccessDenied, MissingCredentials, SourceError, SourceUnavailable
from pricing_data.sources.azure.records import shortened
from pricing_data.sources.azure.settings import SIGN_IN, AzureSettings

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential
    from azure.mgmt.compute.models import ResourceSku

READ_SKUS = "Microsoft.Compute/skus/read"
READ_GRAPH = "Microsoft.ResourceGraph/resources/read"

_ROWS_PER_PAGE = 1000
_RENEW_SECONDS = 300


class SharedToken:
    """One token for every task of a fetch: the Azure CLI and its like start a process for each token they give."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential
        self._lock = threading.Lock()
        self._token: AccessToken | None = None

    def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:  # noqa: ANN401  # as the SDK declares it
        """The token at hand while it lasts; with claims, a new one that answers them."""
        with self._lock:
            if self._token is None or claims or self._token.expires_on - time.time() < _RENEW_SECONDS:
                self._token = self._credential.get_token(*scopes, claims=claims, **options)
            return self._token


class NoToken:
    """Stands where the SDK insists on a credential although its policy sends none."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401  # as the SDK declares it
        """Refuse, so that a token can never travel in clear."""
        raise MissingCredentials(f"no token for {scopes} is sent over plain HTTP, whatever {sorted(options)} ask for")


class Account:
    """A subscription and the right to read in it.

    Each listing opens a client of its own: the SDK's clients must not be shared between threads.
    """

    def __init__(self, subscription: str, settings: AzureSettings, credential: TokenCredential) -> None:
        self._subscription = subscription
        self._settings = settings
        self._credential = credential

    @classmethod
    def sign_in(cls, settings: AzureSettings, credential: TokenCredential | None) -> Account:
        """The account that settings and environment name, once a token was had for it.

        Without a `credential`, `DefaultAzureCredential` looks for one in the environment, the Azure CLI and the like.
        """
        subscription = settings.chosen_subscription()
        _quieten()
        if not settings.sends_tokens:
            return cls(subscription, settings, NoToken())
        account = cls(subscription, settings, SharedToken(credential or _default_credential(settings)))
        with account._translated(f"Azure sign-in for {settings.endpoint}", "a token"):
            account._credential.get_token(_scope(settings))
        return account

    def skus(self, region: str) -> Iterator[list[ResourceSku]]:
        """The compute SKUs of a region, page by page."""
        with ComputeManagementClient(
            self._credential, self._subscription, self._settings.endpoint, **self._client_options()
        ) as client:
            pages = client.resource_skus.list(filter=f"location eq '{region}'").by_page()
            while True:
                with self._translated(f"Azure machine types of {region}", READ_SKUS):
                    page = next(pages, None)
                    skus = None if page is None else list(page)
                if skus is None:
                    return
                yield skus

    def rows(self, asked: str, query: str) -> Iterator[list[Any]]:
        """What a Resource Graph query finds, page by page."""
        options = QueryRequestOptions(top=_ROWS_PER_PAGE, result_format="objectArray")
        request = QueryRequest(query=query, subscriptions=[self._subscription], options=options)
        with ResourceGraphClient(self._credential, self._settings.endpoint, **self._client_options()) as client:
            while True:
                with self._translated(asked, READ_GRAPH):
                    # A query changes nothing, so that it may be sent again although it is a POST.
                    answer = client.resources(request, retry_on_methods=frozenset({"POST"}))
                    rows: object = answer.data
                if not isinstance(rows, list):
                    raise SourceUnavailable(f"{asked}: the answer's data is not a list (try again later)")
                yield rows
                if not answer.skip_token:
                    break
                options.skip_token = answer.skip_token
        if answer.result_truncated == "true":
            raise SourceUnavailable(f"{asked}: Resource Graph cut its answer short (try again later)")

    @contextmanager
    def _translated(self, asked: str, permission: str) -> Iterator[None]:
        """What the SDKs raise, as this package's errors."""
        try:
            yield
        except ClientAuthenticationError as error:
            raise MissingCredentials(
                f"{asked}: the credentials are missing, wrong or expired, {shortened(error)}: {SIGN_IN}"
            ) from error
        except HttpResponseError as error:
            raise _refusal(error, asked, f"{permission} on /subscriptions/{self._subscription}") from error
        except AzureError as error:
            raise SourceUnavailable(
                f"{asked}: no answer, {shortened(error)} (is the network up? try again later)"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The SDKs take an answer apart before they look whether it is what they expect.
            raise SourceUnavailable(
                f"{asked}: the answer is not as documented, {shortened(error)} (try again later)"
            ) from error

    def _client_options(self) -> dict[str, Any]:
        patience = self._settings
        options: dict[str, Any] = {
            "credential_scopes": [_scope(patience)],
            "retry_total": patience.retries,
            "retry_connect": patience.retries,
            "retry_read": patience.retries,
            "retry_status": patience.retries,
            "retry_backoff_factor": patience.backoff_seconds,
            "retry_backoff_max": patience.longest_wait_seconds,
            "connection_timeout": patience.timeout_seconds,
            "read_timeout": patience.timeout_seconds,
        }
        if not patience.sends_tokens:
            options["authentication_policy"] = SansIOHTTPPolicy()
        return options


def _scope(settings: AzureSettings) -> str:
    return f"{settings.endpoint}/.default"


def _default_credential(settings: AzureSettings) -> TokenCredential:
    from azure.identity import DefaultAzureCredential

    chosen = settings.managed_identity or os.environ.get("AZURE_TOKEN_CREDENTIALS")
    exclusions = {} if chosen else {"exclude_managed_identity_credential": True}
    try:
        return DefaultAzureCredential(**exclusions)
    except ValueError as error:
        raise MissingCredentials(f"Azure credentials cannot be used, {shortened(error)}: {SIGN_IN}") from error


def _quieten() -> None:
    """Keep the SDK's warnings off the terminal: what they say comes back in the errors. A level chosen before stays."""
    logger = logging.getLogger("azure")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


def _refusal(error: HttpResponseError, asked: str, needed: str) -> SourceError:
    if error.status_code == 403:
        return AccessDenied(f"{asked}: {needed} is denied, {shortened(error)}: ask for the role Reader there")
    if error.status_code == 404:
        return AccessDenied(f"{asked}: {needed} finds nothing, {shortened(error)}: check AZURE_SUBSCRIPTION_ID")
    status = f"HTTP {error.status_code}, " if error.status_code else ""
    return SourceUnavailable(f"{asked}: no usable answer, {status}{shortened(error)} (try again later)")
