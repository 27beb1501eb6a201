"""The needs of an Azure subscription, once: providers, a group, a container, the machines' identity,
two roles, and a condition on what the launcher may assign.

Roles and assignments are checked by the SDK's models in tests, an account's body is that of an
example of https://github.com/Azure/azure-rest-api-specs; those of a container and an identity were
compared with nothing, and no account has tried any. What is removed must be empty: Azure deletes a
group, an account and a container with everything in them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from itertools import islice
from typing import Any

from pricing_data.errors import CloudError, RequestRejected, UnknownResource
from spotctl.agent.data.sets import FOLDER
from spotctl.agent.data.stores import NoSuchObject, StoreRefused
from spotctl.clouds.azure.buckets import LAUNCHER
from spotctl.clouds.azure.calls import (
    BY_ID,
    MACHINE_ROLE,
    NAMESPACES,
    RAISE_COMMAND,
    AzureCalls,
    Operation,
    role,
)
from spotctl.clouds.azure.cloud import AzureMachineSettings, AzureSettings, spelled
from spotctl.clouds.azure.doctor import ON_DEMAND_QUOTA, SPOT_QUOTA
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.azure.storage import API_VERSION, endpoint
from spotctl.clouds.errors import ApiCall, NotYet
from spotctl.clouds.setup import SetupStep, setting_step, step_of_calls
from spotctl.clouds.store_calls import store_answer
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest

NAME = "spotctl"
"""The name of the group, the container, the machines' identity and the launcher's role."""

_DATA_ROLE = "Storage Blob Data Contributor"
_BUILT_IN = {_DATA_ROLE: "ba92f5b4-2d11-453d-a403-e96b0029c9fe"}
_VERSIONS = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.ManagedIdentity": "2024-11-30",
    "Microsoft.Resources": "2025-04-01",
    "Microsoft.Storage": "2023-05-01",
}
_ASSIGN, _ROLES = (
    "Microsoft.Authorization/roleAssignments",
    "Microsoft.Authorization/roleDefinitions",
)
_GUID = "MACHINE-ROLE"
"""Stands for the id of the machines' role in a condition."""

_ONLY = (
    f"((!(ActionMatches{{'{_ASSIGN}/write'}})) OR "
    f"(@Request[{_ASSIGN}:RoleDefinitionId] ForAnyOfAnyValues:GuidEquals {{{_GUID}}}))"
)
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_CHANGES = " AND ".join(
    f"!(ActionMatches{{'{_BLOBS}/{action}'}})" for action in ("write", "add/action", "delete")
)
_NO_DATA = f"(({_CHANGES}) OR (@Resource[{_BLOBS}:path] StringNotLike '{FOLDER}/*'))"
_NOT_YET = frozenset(
    """
    ContainerBeingDeleted MissingSubscriptionRegistration PrincipalNotFound ResourceGroupBeingDeleted
    RoleDefinitionDoesNotExist StorageAccountIsNotProvisioned
    """.split()
)
_NAMES = uuid.UUID("0f4c6b0e-35c5-4a9e-9f0b-5d7a2c1e8b44")


@contextmanager
def opened(
    settings: Settings, region: str, types: Sequence[str]
) -> Iterator[tuple[str, list[SetupStep], Mapping[str, Any]]]:
    """The subscription, its steps, and what jobs then say of it. Raises `CloudError` if no
    credentials are found.
    """
    region = spelled(region or os.environ.get("AZURE_DEFAULTS_LOCATION", ""))
    if not region:
        raise BadRequest("azure: no region is configured; name one: --region eastus")
    if types:
        command = RAISE_COMMAND.format(
            quota=SPOT_QUOTA, subscription="SUBSCRIPTION", region=region, limit="VCPUS"
        )
        raise BadRequest(
            "azure: --type: spotctl requests no quotas of Azure; request them in the Azure portal "
            f"under Quotas, or with {command}; on demand, {ON_DEMAND_QUOTA} and the size's family"
        )
    access = AzureSettings(
        subscription=settings.text("azure_subscription"),
        management_endpoint=settings.text("azure_management_endpoint"),
        managed_identity=settings.flag("azure_managed_identity"),
    )
    session = AzureSession.sign_in(access)
    steps = _Steps(session, settings, region)
    setting = "azure", "identity", steps.identity, "machines get it"
    rows = [*steps.things(), *steps.rights(), setting_step(settings, *setting)]
    yield session.subscription, rows, {"checkpoint": {"path": f"az://{NAME}@{steps.store}/JOB/"}}


class _Steps:
    """The rows of a subscription."""

    def __init__(self, session: AzureSession, settings: Settings, region: str) -> None:
        self._session, self._settings, self._region = session, settings, region
        self._calls, self._scope = AzureCalls(session), session.subscription_id
        self._launcher = session.principal()
        self._made = set[str]()
        # Names of accounts are those of the whole of Azure, of 24 letters and digits.
        own = sha256(f"{session.subscription} {region}".encode()).hexdigest()
        self.store = f"{NAME}{own[:17]}"
        group = self._group = f"{self._scope}/resourceGroups/{NAME}"
        self.identity = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{NAME}"
        self._account = f"{group}/providers/Microsoft.Storage/storageAccounts/{self.store}"
        self._containers = f"{self._account}/blobServices/default/containers"
        self._container = f"{self._containers}/{NAME}"

    def things(self) -> Iterator[SetupStep]:
        """The needs of a subscription, apart from rights. The container is removed while the
        launcher may still look into it."""
        for name in (*NAMESPACES, "Microsoft.Storage"):
            yield step_of_calls(
                self._send,
                f"provider {name}",
                f"registration of {name}",
                ("get", name),
                [("register", name)],
                None,
                lambda kept: kept.get("registrationState") == "Registered",
            )._replace(
                commands=(self._az("provider register", "--namespace", name, "--wait"),),
                settles=True,
            )

        tags = dict(self._settings.table("azure", AzureMachineSettings).tags)
        place: dict[str, Any] = {"location": self._region, **({"tags": tags} if tags else {})}
        where = ["--location", self._region]
        where += ["--tags", *(f"{name}={text}" for name, text in tags.items())] if tags else []
        closed = {
            "allowBlobPublicAccess": False,
            "allowSharedKeyAccess": False,
            "minimumTlsVersion": "TLS1_2",
            "supportsHttpsTrafficOnly": True,
        }
        kind = {"kind": "StorageV2", "sku": {"name": "Standard_LRS"}, "properties": closed}
        flags = "--kind StorageV2 --sku Standard_LRS --allow-blob-public-access false "
        flags += "--allow-shared-key-access false --min-tls-version TLS1_2 --https-only true"
        inside = "--resource-group", NAME
        of_account = "--storage-account", self.store
        for what, id_, body, command, words in (
            (f"resource group {NAME}", self._group, place, "group create", where),
            (
                f"storage account {self.store}, closed to the public",
                self._account,
                place | kind,
                "storage account create",
                [*inside, *where, *flags.split()],
            ),
            (
                f"container az://{NAME}@{self.store} for checkpoints and outputs",
                self._container,
                {"properties": {"publicAccess": "None"}},
                "storage container-rm create",
                [*of_account, *inside],
            ),
            (
                f"managed identity {NAME}, which machines get",
                self.identity,
                place,
                "identity create",
                [*inside, *where],
            ),
        ):
            if id_ == self._container and self._launcher:
                what_for = f"right of who is signed in to use storage account {self.store}"
                yield self._assignment(what_for, self._account, _DATA_ROLE, "", *self._launcher)
            yield step_of_calls(
                self._send,
                id_,
                what,
                ("read", id_),
                [("write", id_, body)],
                [("delete", id_)],
                lambda kept: (
                    kept["properties"].get("provisioningState", "Succeeded") == "Succeeded"
                ),
            )._replace(
                commands=(self._az(command, "--name", id_.rpartition("/")[2], *words),),
                settles=True,
            )

    def rights(self) -> Iterator[SetupStep]:
        """The roles, and who has them. Each run assigns the machines' role itself, limited to its
        own group."""
        for name, policy, what in (
            (NAME, "azure", "which allows launches"),
            (MACHINE_ROLE, "azure-machines", "by which machines delete themselves"),
        ):
            document = role(policy, self._settings) | {"AssignableScopes": [self._scope]}
            granted = {"actions": document["Actions"], "notActions": [], "dataActions": []}
            properties = {
                "roleName": name,
                "description": document["Description"],
                "type": "CustomRole",
                "permissions": [{**granted, "notDataActions": []}],
                "assignableScopes": [self._scope],
            }
            own = partial(self._role_id, name)
            yield step_of_calls(
                self._send,
                f"role {name}",
                f"role {name}, {what}",
                ("read", own),
                [("write", own, {"properties": properties})],
                [("delete", own)],
                partial(_is_same, document["Actions"]),
            )._replace(
                commands=(
                    self._az("role definition create", "--role-definition", json.dumps(document)),
                )
            )
        if self._launcher:
            what = "right of who is signed in to launch, and to assign the machines' role only"
            yield self._assignment(what, self._scope, NAME, _ONLY, *self._launcher)
        store = f"az://{NAME}@{self.store}"
        what = f"right of machines to use {store}, but not to write to {FOLDER}/"
        yield self._assignment(what, self._container, _DATA_ROLE, _NO_DATA, "", "ServicePrincipal")

    def _assignment(
        self, what: str, scope: str, role_name: str, condition: str, who: str, kind: str
    ) -> SetupStep:
        """A role at this very scope of somebody, or without a name, of machines."""

        def wanted() -> dict[str, Any]:
            machines = who or self._send("read", self.identity)["properties"]["principalId"]
            needed = {"principalId": machines, "principalType": kind}
            needed["roleDefinitionId"] = self._role_id(role_name)
            if condition:
                guid = self._role_id(MACHINE_ROLE).rpartition("/")[2]
                needed["condition"] = condition.replace(_GUID, guid)
                needed["conditionVersion"] = "2.0"
            return {"properties": needed}

        def own() -> str:
            """The assignment that exists, or is to be made."""
            needed = wanted()["properties"]
            call, whose = ApiCall("Azure: roles assigned", f"{_ASSIGN}/read"), needed["principalId"]
            method, guid = (
                "authorization.role_assignments.list_for_scope",
                needed["roleDefinitionId"],
            )
            like = scope.lower(), guid.rpartition("/")[2].lower()
            asked = self._session.items(call, method, scope, filter=f"principalId eq '{whose}'")
            for kept in (each["properties"] | {"id": each["id"]} for each in asked):
                at = kept["scope"].lower(), kept["roleDefinitionId"].rpartition("/")[2].lower()
                if at == like:
                    return str(kept["id"])
            return f"{scope}/providers/{_ASSIGN}/{uuid.uuid5(_NAMES, f'{scope} {guid} {whose}')}"

        query = f"--output tsv {shlex.join(['--subscription', self._session.subscription])}"
        identity = f"az identity show --name {NAME} --resource-group {NAME} --query principalId"
        guid = f"az role definition list --name {MACHINE_ROLE} --query '[0].name'"
        words = ["--assignee-object-id", who or _GUID, "--assignee-principal-type", kind]
        words += ["--role", role_name, "--scope", scope]
        words += ["--condition-version", "2.0", "--condition", condition] if condition else []
        looked_up = guid if who else identity
        return step_of_calls(
            self._send,
            f"{role_name} of {who or 'machines'} at {scope}",
            what,
            ("read", own),
            [("write", own, wanted)],
            [("delete", own)],
            lambda kept: (
                kept["properties"].get("condition") == wanted()["properties"].get("condition")
                or None
            ),
        )._replace(
            commands=(
                self._az("role assignment create", *words).replace(
                    _GUID, f"'\"$({looked_up} {query})\"'" if who else f'"$({looked_up} {query})"'
                ),
            )
        )

    def _role_id(self, name: str) -> str:
        """A role that exists, or is to be made."""
        guid = _BUILT_IN.get(name) or uuid.uuid5(_NAMES, f"{self._scope} {name}")
        if name not in _BUILT_IN:
            chosen = f"roleName eq '{name}'"
            for kept in self._calls.listed(Operation.LIST_ROLES, self._scope, filter=chosen):
                return str(kept["id"])
        return f"{self._scope}/providers/{_ROLES}/{guid}"

    def _send(
        self,
        action: str,
        where: str | Callable[[], str],
        body: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Mapping[str, Any]:
        """Reads, writes or deletes a resource by its id, or gets or registers a provider. What
        holds anything is not deleted."""
        id_, given = (
            where if isinstance(where, str) else where(),
            body() if callable(body) else body,
        )
        at = id_.rpartition("/providers/")[2].split("/")
        kind = "/".join([at[0], *at[1::2]])
        if id_ == self._group:
            kind = "Microsoft.Resources/subscriptions/resourceGroups"
        right = f"{kind}/{action}{'/action' if action == 'register' else ''}"
        options: dict[str, Any] = {}
        if action in BY_ID:
            options["api_version"] = _VERSIONS[kind.partition("/")[0]]
            method = f"resources.resources.{BY_ID[action]}"
        else:
            method = f"resources.providers.{action}"
        if action == "get":
            right = "Microsoft.Resources/subscriptions/providers/read"
        if action == "write":
            options["waits"] = id_ == self._account
        if action == "delete" and (held := [*islice(self._held(id_), 3)]):
            problem = f"Azure: {id_.rpartition('/')[2]} ({kind}) still holds {', '.join(held)}"
            raise RequestRejected(problem, "remove it by hand if nothing needs it")
        bodies = () if given is None else (given,)
        try:
            call = ApiCall(f"Azure: {right}", right)
            answer = self._session.carry_out(call, method, id_, *bodies, **options)
        except CloudError as error:
            if error.code in _NOT_YET:
                raise NotYet(str(error)) from error
            raise
        if answer.status == HTTPStatus.CREATED:
            self._made.add(id_)
        return answer.body

    def _held(self, id_: str) -> Iterator[str]:
        """The names of what is in a resource."""
        if id_ == self._group:
            for item in self._calls.pages(Operation.LIST_RESOURCES, NAME):
                # The list knows late what is gone.
                with suppress(UnknownResource):
                    if str(item["id"]).lower() in (self._account.lower(), self.identity.lower()):
                        self._send("read", str(item["id"]))
                    yield str(item["name"])
        if id_ == self._account:
            yield from (each["name"] for each in self._send("read", self._containers)["value"])
        # Nothing is in a container that was just made, and Azure may need minutes until it lets the
        # launcher look.
        if id_ == self._container and id_ not in self._made:
            what, query = f"az://{NAME}@{self.store}", {"restype": "container", "comp": "list"}
            url = f"{endpoint(self.store)}/{NAME}"
            try:
                token, _ = LAUNCHER.token()
                headers = {"Authorization": f"Bearer {token}", "x-ms-version": API_VERSION}
                answer = store_answer("GET", url, what, headers, {**query, "maxresults": "3"})
            except NoSuchObject:
                return
            except StoreRefused as error:
                cure = "remove it by hand if it is empty"
                raise RequestRejected(f"Azure: {error}", cure) from None
            yield from re.findall("<Name>([^<]+)", answer.text)

    def _az(self, command: str, *words: str) -> str:
        return f"az {command} {shlex.join([*words, '--subscription', self._session.subscription])}"


def _is_same(actions: Sequence[str], kept: Mapping[str, Any]) -> bool | None:
    """Whether a role that exists allows these actions and no others; None if not."""
    return set(kept["properties"]["permissions"][0]["actions"]) == set(actions) or None
