"""The administration of a simulated Google Cloud project: APIs, roles, service accounts, buckets,
and the policies of all of these.

Fields of Service Usage are those of its discovery document; the others are as spotctl sends them,
and were compared with Google's own clients in part. Refusals are in Google's words: of a disabled API, as
https://github.com/googleapis/gax-nodejs quotes it; of policies that others changed,
https://github.com/pulumi/pulumi-google-native/issues/862; of a new account that policies do not know
yet, https://github.com/googleapis/google-cloud-go/issues/11482, and that is denied at first,
https://github.com/GoogleCloudPlatform/magic-modules/pull/11811; of a role that was deleted,
https://github.com/hashicorp/terraform-provider-google/pull/1681; of missing rights,
https://github.com/hashicorp/terraform-provider-google/issues/10103 and
https://github.com/data-integrations/google-cloud/pull/1503. Bindings of an account that was deleted
are renamed: https://cloud.google.com/iam/docs/service-accounts-delete-undelete.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.servers.gcp import PROJECT
from tests.servers.loopback import Reply, Request
from tests.servers.objects import ObjectStore

Json = dict[str, Any]

MEMBER = "serviceAccount:launcher@example.com"
"""The identity of the key file with which launchers sign in (`tests.cloud.buckets`)."""

_BIND = {"role", "members", "condition"}
_FIELDS = {
    "batchEnable": {"serviceIds"},
    "role": {"title", "description", "includedPermissions", "stage"},
    "account": {"displayName", "description"},
    "bucket": {"name", "location", "iamConfiguration", "softDeletePolicy", "labels"},
    "policy": {"auditConfigs", "bindings", "etag", "version", "kind", "resourceId"},
}
_KNOWN_ROLES = {
    "roles/iam.serviceAccountUser": {"iam.serviceAccounts.actAs"},
    "roles/storage.legacyBucketReader": {"storage.buckets.get"},
    "roles/storage.objectViewer": {"storage.objects.get"},
    "roles/storage.objectUser": {"storage.objects.create"},
    "roles/owner": {"*"},
}


class Refusal(Exception):
    """An answer of 4xx, as newer APIs write it, or with `errors` as Cloud Storage does."""

    def __init__(self, status: int, text: str, reason: str, *, storage: bool = False) -> None:
        super().__init__(text)
        error: Json = {"code": status, "message": text}
        if storage:
            error["errors"] = [{"message": text, "domain": "global", "reason": reason}]
        else:
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
            error |= {"status": reason, "details": [{**info, "domain": "googleapis.com"}]}
        self.reply = Reply.of_json({"error": error}, status)


class GcpAdmin:
    """`denied` are permissions that the launcher lacks; one that is no `owner` has only those that
    policies give. Disabled `apis` answer nothing, and one that was enabled is so after `settling`
    questions. A new account is refused by policies, and denied, `late` times. `rivals` others change a policy right
    after it was read, and `lost` roles were deleted long ago.
    """

    def __init__(self, denied: set[str], store: Callable[[], ObjectStore]) -> None:
        self.denied, self._store = denied, store
        self.owner, self.settling, self.late, self.rivals = True, 0, 0, 0
        self.apis = dict.fromkeys(("compute", "iam", "cloudresourcemanager", "storage"), True)
        self.roles: dict[str, Json] = {}
        self.accounts: dict[str, Json] = {}
        self.buckets: dict[str, Json] = {}
        self.lost: set[str] = set()
        self.policies: dict[str, Json] = {}
        self.changes = 0
        self._numbers, self._refused = Counter[str](), Counter[str]()
        self._hidden = Counter[str]()
        self._enabling: list[str] = []

    def things(self) -> set[str]:
        """Everything in the project, and its rights."""
        roles = {f"role {name}" for name, role in self.roles.items() if not role.get("deleted")}
        things = roles | {f"account {email}" for email in self.accounts}
        things |= {f"bucket {name}" for name in self.buckets}
        for whose, policy in self.policies.items():
            for bound in policy["bindings"]:
                things |= {f"{one} {bound['role']} {whose}" for one in bound["members"]}
        return things

    def allows(self, permission: str, whose: str = PROJECT) -> bool:
        """Whether the launcher has a permission, in the project or on one thing in it."""
        if self.owner:
            return permission not in self.denied
        for each in {PROJECT, whose}:
            for bound in self._policy(each)["bindings"]:
                name = bound["role"].rpartition("/")[2]
                granted = _KNOWN_ROLES.get(bound["role"]) or set(
                    self.roles.get(name, {}).get("includedPermissions", ())
                )
                if MEMBER in bound["members"] and permission in granted:
                    return True
        return False

    def answer(self, request: Request) -> Reply | None:
        """The answer; None: these APIs have no such method."""
        own = rf"/v1/projects/{re.escape(PROJECT)}"
        routes: Mapping[str, Callable[..., Json]] = {
            rf"GET {own}/services:batchGet": self._get_apis,
            rf"POST {own}/services:batchEnable": self._enable,
            rf"GET {own}/roles/(?P<name>[^/:]+)": self._get_role,
            rf"POST {own}/roles": self._create_role,
            rf"PATCH {own}/roles/(?P<name>[^/:]+)": self._update_role,
            rf"POST {own}/roles/(?P<name>[^/:]+):undelete": self._undelete_role,
            rf"DELETE {own}/roles/(?P<name>[^/:]+)": self._delete_role,
            rf"GET {own}/serviceAccounts/(?P<name>[^/:]+)": self._get_account,
            rf"POST {own}/serviceAccounts": self._create_account,
            rf"DELETE {own}/serviceAccounts/(?P<name>[^/:]+)": self._delete_account,
            rf"POST {own}/serviceAccounts/(?P<whose>[^/:]+):(?P<verb>[gs]et)IamPolicy": self._policy_of_account,
            rf"POST {own}:(?P<verb>[gs]et)IamPolicy": self._policy_of_project,
            r"GET /storage/v1/b/(?P<name>[^/]+)": self._get_bucket,
            r"POST /storage/v1/b": self._create_bucket,
            r"DELETE /storage/v1/b/(?P<name>[^/]+)": self._delete_bucket,
            r"(?P<verb>GET|PUT) /storage/v1/b/(?P<whose>[^/]+)/iam": self._policy_of_bucket,
        }
        for pattern, handler in routes.items():
            if match := re.fullmatch(pattern, f"{request.method} {request.path}"):
                try:
                    reply = Reply.of_json(handler(request, **match.groupdict()))
                except Refusal as refused:
                    return refused.reply
                self.changes += request.method != "GET" and "getIamPolicy" not in request.path
                return reply
        return None

    def _check(self, permission: str, text: str = "", whose: str = PROJECT) -> None:
        api = {"resourcemanager": "cloudresourcemanager"}.get(
            kind := permission.partition(".")[0], kind
        )
        if not self.apis.get(api, True):
            said = f"{api} API has not been used in project {PROJECT} before or it is disabled."
            text = f"{said} Enable it by visiting https://console.developers.google.com then retry."
            raise Refusal(403, text, "SERVICE_DISABLED")
        if not self.allows(permission, whose):
            usual = f"Permission '{permission}' denied on resource (or it may not exist)."
            raise Refusal(403, text or usual, "IAM_PERMISSION_DENIED", storage=kind == "storage")

    # APIs.

    def _get_apis(self, request: Request) -> Json:
        self._check("serviceusage.services.get")
        self.settling -= bool(self._enabling)
        if self.settling <= 0:
            self.apis |= dict.fromkeys(self._enabling, True)
            self._enabling = []
        states = {True: "ENABLED", False: "DISABLED"}
        return {
            "services": [
                {"name": name, "state": states[self.apis[name.rpartition("/")[2].split(".")[0]]]}
                for name in request.query["names"]
            ]
        }

    def _enable(self, request: Request) -> Json:
        names = _body(request, "batchEnable")["serviceIds"]
        self._check("serviceusage.services.enable", f"Permission denied to enable service {names}")
        self._enabling = [name.split(".")[0] for name in names]
        return {"name": "operations/acat.p2-1"}

    # Roles.

    def _role(self, name: str) -> Json:
        if name not in self.roles:
            text = f"The role named projects/{PROJECT}/roles/{name} was not found."
            raise Refusal(404, text, "NOT_FOUND")
        return self.roles[name]

    def _get_role(self, _: Request, name: str) -> Json:
        self._check("iam.roles.get")
        return self._role(name)

    def _create_role(self, request: Request) -> Json:
        self._check("iam.roles.create")
        body = request.json()
        name, role = body.pop("roleId"), body.pop("role")
        _known(body, set())
        _known(role, _FIELDS["role"])
        assert re.fullmatch(r"[a-zA-Z0-9_.]{3,64}", name)
        if self.roles.get(name, {}).get("deleted"):
            text = f"You can't create a role_id ({name}) which has been marked for deletion."
            raise Refusal(400, text, "FAILED_PRECONDITION")
        if name in self.roles:
            text = f"A role named {name} in projects/{PROJECT} already exists."
            raise Refusal(409, text, "ALREADY_EXISTS")
        self.roles[name] = {"name": f"projects/{PROJECT}/roles/{name}", **role}
        return self.roles[name]

    def _update_role(self, request: Request, name: str) -> Json:
        self._check("iam.roles.update")
        (mask,) = request.query["updateMask"]
        _known(body := request.json(), set(mask.split(",")))
        if self._role(name).get("deleted"):
            raise Refusal(400, f"You can't update role_id ({name}).", "FAILED_PRECONDITION")
        self.roles[name] |= body
        return self.roles[name]

    def _undelete_role(self, _: Request, name: str) -> Json:
        self._check("iam.roles.undelete")
        if name in self.lost or not self._role(name).pop("deleted", False):
            raise Refusal(400, f"You can't undelete role_id ({name}).", "FAILED_PRECONDITION")
        return self.roles[name]

    def _delete_role(self, _: Request, name: str) -> Json:
        self._check("iam.roles.delete")
        self._role(name)["deleted"] = True
        return self.roles[name]

    # Service accounts.

    def _get_account(self, _: Request, name: str) -> Json:
        self._check("iam.serviceAccounts.get")
        return self._account(name)

    def _account(self, name: str) -> Json:
        if name not in self.accounts:
            raise Refusal(404, f"Unknown service account {name}", "NOT_FOUND")
        self._hidden[name] -= 1
        if self._hidden[name] >= 0:
            text = "Permission iam.serviceAccounts.get is required to perform this operation on"
            raise Refusal(403, f"{text} service account {name}.", "PERMISSION_DENIED")
        return self.accounts[name]

    def _create_account(self, request: Request) -> Json:
        self._check("iam.serviceAccounts.create")
        body = request.json()
        name, account = body.pop("accountId"), body.pop("serviceAccount")
        _known(body, set())
        _known(account, _FIELDS["account"])
        assert re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", name)
        email = f"{name}@{PROJECT}.iam.gserviceaccount.com"
        if email in self.accounts:
            text = f"Service account {name} already exists within project projects/{PROJECT}."
            raise Refusal(409, text, "ALREADY_EXISTS")
        self._numbers[email] += 1
        self._refused[email] = self._hidden[email] = self.late
        self.accounts[email] = {"email": email, "uniqueId": str(self._numbers[email]), **account}
        return self.accounts[email]

    def _delete_account(self, _: Request, name: str) -> Json:
        self._check("iam.serviceAccounts.delete")
        number = self._account(name)["uniqueId"]
        del self.accounts[name]
        self.policies.pop(name, None)
        gone = f"deleted:serviceAccount:{name}?uid={number}"
        for bound in self._bindings():
            members = bound["members"]
            members[:] = [gone if one == f"serviceAccount:{name}" else one for one in members]
        return {}

    # Buckets.

    def _get_bucket(self, _: Request, name: str) -> Json:
        self._check("storage.buckets.get", whose=name)
        return self._bucket(name)

    def _bucket(self, name: str) -> Json:
        if name not in self.buckets:
            text = "The specified bucket does not exist."
            raise Refusal(404, text, "notFound", storage=True)
        return self.buckets[name]

    def _create_bucket(self, request: Request) -> Json:
        text = (
            f"{MEMBER.partition(':')[2]} does not have storage.buckets.create access to the Google "
            "Cloud project. Permission 'storage.buckets.create' denied on resource (or it may not "
            "exist)."
        )
        self._check("storage.buckets.create", text)
        assert request.query == {"project": [PROJECT]}
        body = _body(request, "bucket")
        assert re.fullmatch(r"[a-z0-9][-_a-z0-9]{1,61}[a-z0-9]", body["name"])
        assert isinstance(body["softDeletePolicy"]["retentionDurationSeconds"], str)
        if body["name"] in self.buckets:
            text = (
                "Your previous request to create the named bucket succeeded and you already own it."
            )
            raise Refusal(409, text, "conflict", storage=True)
        self.buckets[body["name"]] = body
        self._store().add(body["name"])
        return body

    def _delete_bucket(self, _: Request, name: str) -> Json:
        self._check("storage.buckets.delete", whose=name)
        self._bucket(name)
        if self._store().others[name].objects:
            text = "The bucket you tried to delete is not empty."
            raise Refusal(409, text, "conflict", storage=True)
        del self.buckets[name], self._store().others[name]
        self.policies.pop(name, None)
        return {}

    # Policies.

    def _policy(self, whose: str) -> Json:
        empty = {"etag": "0", "version": 1, "bindings": []}
        return self.policies.setdefault(whose, empty)

    def _bindings(self) -> Iterator[Json]:
        return (bound for policy in self.policies.values() for bound in policy["bindings"])

    def _policy_of_project(self, request: Request, verb: str) -> Json:
        denied = {"get": "The caller does not have permission"}
        text = denied.get(verb, "Policy update access denied.")
        self._check(f"resourcemanager.projects.{verb}IamPolicy", text)
        if verb == "get":
            assert request.json() == {"options": {"requestedPolicyVersion": 3}}
            return self._read(PROJECT)
        return self._write(PROJECT, request.json()["policy"], 409)

    def _policy_of_account(self, request: Request, whose: str, verb: str) -> Json:
        self._check(f"iam.serviceAccounts.{verb}IamPolicy", whose=whose)
        self._account(whose)
        if verb == "get":
            assert request.query == {"options.requestedPolicyVersion": ["3"]}
            return self._read(whose)
        return self._write(whose, request.json()["policy"], 409)

    def _policy_of_bucket(self, request: Request, whose: str, verb: str) -> Json:
        verb = {"GET": "get", "PUT": "set"}[verb]
        self._check(f"storage.buckets.{verb}IamPolicy", whose=whose)
        self._bucket(whose)
        if verb == "get":
            assert request.query == {"optionsRequestedPolicyVersion": ["3"]}
            return self._read(whose)
        return self._write(whose, request.json(), 412)

    def _read(self, whose: str) -> Json:
        read = copy.deepcopy(policy := self._policy(whose))
        if self.rivals:
            self.rivals -= 1
            rival = {"role": "roles/viewer", "members": [f"user:rival{self.rivals}@example.com"]}
            policy["bindings"].append(rival)
            policy["etag"] = str(int(policy["etag"]) + 1)
        return read

    def _write(self, whose: str, policy: Json, conflict: int) -> Json:
        _known(policy, _FIELDS["policy"])
        kept = self._policy(whose)
        if policy["etag"] != kept["etag"] and conflict == 412:
            text = "At least one of the pre-conditions you specified did not hold."
            raise Refusal(412, text, "conditionNotMet", storage=True)
        if policy["etag"] != kept["etag"]:
            text = (
                "There were concurrent policy changes. Please retry the whole read-modify-write with "
                "exponential backoff. The request's ETag did not match the current policy's ETag."
            )
            raise Refusal(409, text, "ABORTED")
        for bound in policy["bindings"]:
            _known(bound, _BIND)
            self._check_binding(bound, policy["version"])
        self.policies[whose] = {**policy, "etag": str(int(kept["etag"]) + 1)}
        return self.policies[whose]

    def _check_binding(self, bound: Json, version: int) -> None:
        role = bound["role"].rpartition("/")[2]
        if bound["role"].startswith("projects/") and (
            role not in self.roles or self.roles[role].get("deleted")
        ):
            text = f"Role ({bound['role']}) does not exist in the resource's hierarchy."
            raise Refusal(400, text, "INVALID_ARGUMENT")
        if "condition" in bound and (version < 3 or not bound["condition"].get("title")):
            raise Refusal(400, "Request contains an invalid argument.", "INVALID_ARGUMENT")
        for member in bound["members"]:
            kind, _, email = member.partition(":")
            if kind != "serviceAccount" or member == MEMBER:
                continue
            self._refused[email] -= 1
            if email not in self.accounts or self._refused[email] >= 0:
                text = f"Service account {email} does not exist."
                raise Refusal(400, text, "INVALID_ARGUMENT")


def _body(request: Request, kind: str) -> Json:
    body: Json = request.json()
    _known(body, _FIELDS[kind])
    return body


def _known(body: Json, fields: set[str]) -> None:
    if unknown := sorted(set(body) - fields):
        text = f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
        raise Refusal(400, text, "INVALID_ARGUMENT")
