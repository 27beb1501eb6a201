"""The needs of an Azure subscription, once: providers, a group, a container, the machines' identity,
two roles, and a condition on what the launcher may assign.

Bodies are those of the specifications of these versions
(https://github.com/Azure/azure-rest-api-specs). What is removed must be empty: Azure deletes a
group, an account and a container with everything in them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any

from pricing_data.errors import CloudError, RequestRejected, UnknownResource
from spotctl.agent.data.sets import FOLDER
from spotctl.agent.data.stores import NoSuchObject, StoreRefused
from spotctl.clouds.azure.buckets import LAUNCHER
from spotctl.clouds.azure.calls import BY_ID, MACHINE_ROLE, NAMESPACES, AzureCalls, Operation, role
from spotctl.clouds.azure.cloud import AzureMachineSettings, AzureSettings, spelled
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.azure.storage import API_VERSION, endpoint
from spotctl.clouds.errors import ApiCall, NotYet
from spotctl.clouds.setup import SetupStep, setting_step, step_of_calls
from spotctl.clouds.store_calls import store_answer
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest

NAME = "spotctl"
"""Of the group, the container, the machines' identity and the launcher's role."""

_DATA_ROLE = "Storage Blob Data Contributor", "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
_VERSIONS = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.ManagedIdentity": "2024-11-30",
    "Microsoft.Resources": "2025-04-01",
    "Microsoft.Storage": "2023-05-01",
}
_ASSIGN = "Microsoft.Authorization/roleAssignments"
_ONLY = (
    f"((!(ActionMatches{{'{_ASSIGN}/write'}})) OR "
    f"(@Request[{_ASSIGN}:RoleDefinitionId] ForAnyOfAnyValues:GuidEquals {{"
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
    if types:
        raise BadRequest("azure: --type: ask for quotas in the Azure portal under Quotas")
    region = spelled(region or os.environ.get("AZURE_DEFAULTS_LOCATION", ""))
    if not region:
        raise BadRequest("azure: no region is configured; name one: --region eastus")
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
        self._session, self._settings, self._calls = session, settings, AzureCalls(session)
        self._scope, self._is_new = session.subscription_id, False
        self._launcher, kind = session.principal()
        self._who = {"principalId": self._launcher, "principalType": kind}
        self._shown = ["--assignee-object-id", self._launcher, "--assignee-principal-type", kind]
        self._data_role = (
            f"{self._scope}/providers/Microsoft.Authorization/roleDefinitions/{_DATA_ROLE[1]}"
        )
        tags = dict(settings.table("azure", AzureMachineSettings).tags)
        self._place: dict[str, Any] = {"location": region, **({"tags": tags} if tags else {})}
        # Names of accounts are those of the whole of Azure, of 24 letters and digits.
        own = sha256(f"{session.subscription} {region}".encode()).hexdigest()
        self.store = f"{NAME}{own[:17]}"
        group = self._group = f"{self._scope}/resourceGroups/{NAME}"
        self.identity = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{NAME}"
        self._account = f"{group}/providers/Microsoft.Storage/storageAccounts/{self.store}"
        self._containers = f"{self._account}/blobServices/default/containers"
        self._container = f"{self._containers}/{NAME}"

    def things(self) -> Iterator[SetupStep]:
        """What a subscription needs, apart from rights. The container is removed while the launcher
        may still look into it."""
        place = ["--location", self._place["location"]]
        if tags := self._place.get("tags"):
            place += ["--tags", *(f"{name}={text}" for name, text in tags.items())]
        for name in (*NAMESPACES, "Microsoft.Storage"):
            right = "Microsoft.Resources/subscriptions/providers/read"
            yield step_of_calls(
                self._provider,
                f"provider {name}",
                f"registration of {name}",
                ("get", name, right),
                [("register", name, f"{name}/register/action")],
                None,
                lambda kept: kept.get("registrationState") == "Registered",
            )._replace(
                commands=(self._az("provider register", "--namespace", name, "--wait"),),
                settles=True,
            )
        yield self._thing(
            f"group {NAME}",
            f"resource group {NAME}",
            self._group,
            self._place,
            self._in_group,
            self._az("group create", "--name", NAME, *place),
        )

        inside = "--resource-group", NAME
        closed = {
            "allowBlobPublicAccess": False,
            "allowSharedKeyAccess": False,
            "minimumTlsVersion": "TLS1_2",
            "supportsHttpsTrafficOnly": True,
        }
        kind = {"kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
        flags = "--kind StorageV2 --sku Standard_LRS --allow-blob-public-access false".split()
        flags += (
            "--allow-shared-key-access false --min-tls-version TLS1_2 --https-only true".split()
        )
        yield self._thing(
            f"storage account {self.store}",
            f"storage account {self.store}, closed to the public",
            self._account,
            {**self._place, **kind, "properties": closed},
            lambda: [each["name"] for each in self._send("read", self._containers)["value"]],
            self._az("storage account create", "--name", self.store, *inside, *place, *flags),
        )
        if self._launcher:
            yield self._assignment(
                "launcher's data",
                f"right of who is signed in to use storage account {self.store}",
                self._account,
                lambda: {**self._who, "roleDefinitionId": self._data_role},
                self._az(
                    "role assignment create",
                    *self._shown,
                    "--role",
                    _DATA_ROLE[0],
                    "--scope",
                    self._account,
                ),
            )
        yield self._thing(
            f"container {NAME}@{self.store}",
            f"container az://{NAME}@{self.store} for checkpoints and outputs",
            self._container,
            {"properties": {"publicAccess": "None"}},
            self._blobs,
            self._az(
                "storage container-rm create",
                "--name",
                NAME,
                "--storage-account",
                self.store,
                *inside,
            ),
        )._replace(make=self._make_container)
        yield self._thing(
            f"identity {NAME}",
            f"managed identity {NAME}, which machines get",
            self.identity,
            self._place,
            tuple,
            self._az("identity create", "--name", NAME, *inside, *place),
        )

    def rights(self) -> Iterator[SetupStep]:
        """The roles of who launches, and of machines. Each run assigns the machines' role itself,
        limited to its own group."""
        yield self._role(NAME, "azure", "which allows launches")
        yield self._role(MACHINE_ROLE, "azure-machines", "by which machines delete themselves")

        create, subscription = (
            "role assignment create",
            ["--subscription", self._session.subscription],
        )
        query = f"--output tsv {shlex.join(subscription)}"
        machine = f"az role definition list --name {MACHINE_ROLE} --query '[0].name' {query}"
        if self._launcher:
            yield self._assignment(
                "launcher",
                "right of who is signed in to launch, and to assign the machines' role only",
                self._scope,
                lambda: {
                    **self._who,
                    "roleDefinitionId": self._role_id(NAME),
                    "condition": f"{_ONLY}{self._role_id(MACHINE_ROLE).rpartition('/')[2]}}}))",
                },
                self._az(create, *self._shown, "--role", NAME, "--scope", self._scope)
                + f" --condition-version 2.0 --condition {shlex.quote(_ONLY)}\"$({machine})\"'}}))'",
            )
        identity = f"az identity show --name {NAME} --resource-group {NAME} --query principalId"
        flags = ["--assignee-principal-type", "ServicePrincipal", "--role", _DATA_ROLE[0]]
        flags += ["--scope", self._container, "--condition-version", "2.0"]
        yield self._assignment(
            "machines' data",
            f"right of machines to use az://{NAME}@{self.store}, but not to write to {FOLDER}/",
            self._container,
            lambda: {
                "principalId": self._send("read", self.identity)["properties"]["principalId"],
                "principalType": "ServicePrincipal",
                "roleDefinitionId": self._data_role,
                "condition": _NO_DATA,
            },
            self._az(create, *flags, "--condition", _NO_DATA)
            + f' --assignee-object-id "$({identity} {query})"',
        )

    def _thing(
        self,
        name: str,
        what: str,
        id_: str,
        body: Mapping[str, Any],
        holds: Callable[[], Iterable[str]],
        command: str,
    ) -> SetupStep:
        """A resource, which is removed if it holds nothing."""

        def remove() -> None:
            if held := list(islice(holds(), 3)):
                problem = f"Azure: {what} still holds {', '.join(held)}"
                raise RequestRejected(problem, "remove it by hand if nothing needs it")
            self._send("delete", id_)

        return step_of_calls(
            self._send,
            name,
            what,
            ("read", id_),
            [("write", id_, body)],
            None,
            lambda kept: kept["properties"].get("provisioningState", "Succeeded") == "Succeeded",
        )._replace(undo=remove, commands=(command,), settles=True)

    def _in_group(self) -> Iterator[str]:
        for item in self._calls.pages(Operation.LIST_RESOURCES, NAME):
            # The list knows late what is gone.
            with suppress(UnknownResource):
                if str(item["id"]).lower() in (self._account.lower(), self.identity.lower()):
                    self._send("read", str(item["id"]))
                yield str(item["name"])

    def _make_container(self) -> None:
        self._send("write", self._container, {"properties": {"publicAccess": "None"}})
        self._is_new = True

    def _blobs(self) -> Iterator[str]:
        """Blobs of the container. Nothing is in one that was just made, and Azure may need minutes
        until it lets the launcher look."""
        if self._is_new:
            return
        what, query = f"az://{NAME}@{self.store}", {"restype": "container", "comp": "list"}
        try:
            token, _ = LAUNCHER.token()
            headers = {"Authorization": f"Bearer {token}", "x-ms-version": API_VERSION}
            url = f"{endpoint(self.store)}/{NAME}"
            answer = store_answer("GET", url, what, headers, {**query, "maxresults": "3"})
        except NoSuchObject:
            return
        except StoreRefused as error:
            raise RequestRejected(f"Azure: {error}", "remove it by hand if it is empty") from None
        yield from re.findall("<Name>([^<]+)", answer.text)

    def _role(self, name: str, policy: str, what: str) -> SetupStep:
        """A role of the subscription, by its name."""
        document = role(policy, self._settings)
        document["AssignableScopes"] = [self._scope]
        granted = {"actions": document["Actions"], "notActions": [], "dataActions": []}
        properties = {
            "roleName": name,
            "description": document["Description"],
            "type": "CustomRole",
            "permissions": [{**granted, "notDataActions": []}],
            "assignableScopes": [self._scope],
        }
        own = uuid.uuid5(_NAMES, f"{self._scope} {name}")
        new = f"{self._scope}/providers/Microsoft.Authorization/roleDefinitions/{own}"

        def is_there() -> bool | None:
            listed = self._roles(name)
            kept = [set(each["properties"]["permissions"][0]["actions"]) for each in listed]
            return (kept == [set(document["Actions"])] or None) if kept else False

        def change(action: str, *body: object) -> None:
            ids = [str(each["id"]) for each in self._roles(name)] or [new]
            self._send(action, ids[0], *body)

        return SetupStep(
            f"role {name}",
            f"role {name}, {what}",
            is_there,
            partial(change, "write", {"properties": properties}),
            partial(change, "delete"),
            (self._az("role definition create", "--role-definition", json.dumps(document)),),
        )

    def _roles(self, name: str) -> list[Mapping[str, Any]]:
        return self._calls.listed(Operation.LIST_ROLES, self._scope, filter=f"roleName eq '{name}'")

    def _role_id(self, name: str) -> str:
        listed = self._roles(name)
        if not listed:
            raise NotYet(f"Azure: there is no role {name}; run this command again later")
        return str(listed[0]["id"])

    def _assignment(
        self,
        name: str,
        what: str,
        scope: str,
        wanted: Callable[[], Mapping[str, Any]],
        command: str,
    ) -> SetupStep:
        """A role of somebody at this very scope."""

        def kept() -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
            """The assignment as it is wanted, and as it is."""
            needed = wanted()
            call, who = ApiCall("Azure: roles assigned", f"{_ASSIGN}/read"), needed["principalId"]
            method = "authorization.role_assignments.list_for_scope"
            own = scope.lower(), needed["roleDefinitionId"].rpartition("/")[2].lower()
            for each in self._session.items(call, method, scope, filter=f"principalId eq '{who}'"):
                is_ = each["properties"]
                if own == (
                    is_["scope"].lower(),
                    is_["roleDefinitionId"].rpartition("/")[2].lower(),
                ):
                    return needed, each
            return needed, None

        def is_there() -> bool | None:
            needed, own = kept()
            if own is None:
                return False
            return own["properties"].get("condition") == needed.get("condition") or None

        def make() -> None:
            needed, own = kept()
            new = uuid.uuid5(
                _NAMES, f"{scope} {needed['roleDefinitionId']} {needed['principalId']}"
            )
            id_ = f"{scope}/providers/{_ASSIGN}/{own['name'] if own else new}"
            version = {"conditionVersion": "2.0"} if "condition" in needed else {}
            self._send("write", id_, {"properties": {**needed, **version}})

        def remove() -> None:
            # Without the role, there is no assignment.
            with suppress(NotYet):
                _, own = kept()
                if own is not None:
                    self._send("delete", own["id"])

        return SetupStep(f"assignment {name} {scope}", what, is_there, make, remove, (command,))

    def _send(self, action: str, id_: str, body: object = None) -> Mapping[str, Any]:
        """Reads, writes or deletes a resource by its id."""
        at = id_.rpartition("/providers/")[2].split("/")
        kind = "/".join([at[0], *at[1::2]])
        if "/providers/" not in id_:
            kind = "Microsoft.Resources/subscriptions/resourceGroups"
        call = ApiCall(f"Azure: {kind}/{action}", f"{kind}/{action}")
        given = (f"resources.resources.{BY_ID[action]}", id_, *(() if body is None else (body,)))
        options: dict[str, Any] = {"api_version": _VERSIONS[kind.partition("/")[0]]}
        if action == "write" and kind.endswith("/storageAccounts"):
            options["waits"] = True
        try:
            return self._session.carry_out(call, *given, **options).body
        except CloudError as error:
            if error.code in _NOT_YET:
                raise NotYet(str(error)) from error
            raise

    def _provider(self, action: str, name: str, right: str) -> Mapping[str, Any]:
        call = ApiCall(f"Azure: {right}", right)
        return self._session.carry_out(call, f"resources.providers.{action}", name).body

    def _az(self, command: str, *words: str) -> str:
        return f"az {command} {shlex.join([*words, '--subscription', self._session.subscription])}"
