"""The needs of a Google Cloud project, once: APIs, roles, the machines' account, a bucket.

Policies are read, changed and written with their `etag`, and again if others have changed them in
between. No account has tried these calls. What is outside of spotctl and agrees with them: Google's
own clients for the paths of roles and policies and the version of a policy, and public code for the
body of a bucket; the names of permissions are those of https://cloud.google.com/iam/docs.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from pricing_data.errors import CloudError, RequestRejected, UnknownResource
from spotctl.agent.data.sets import FOLDER
from spotctl.clouds.errors import ApiCall, NotYet
from spotctl.clouds.gcp.calls import QUOTAS, RAISE_COMMAND, role
from spotctl.clouds.gcp.cloud import GcpMachineSettings, GcpSettings
from spotctl.clouds.gcp.doctor import GPU_METRICS, VCPUS
from spotctl.clouds.gcp.session import GcpSession
from spotctl.clouds.gcp.storage import endpoint
from spotctl.clouds.setup import SetupStep, setting_step, step_of_calls
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest

LAUNCHER, MACHINE, ACCOUNT = "spotctl", "spotctlMachine", "spotctl-machines"
APIS = tuple(
    f"{name}.googleapis.com" for name in ("compute", "iam", "cloudresourcemanager", "storage")
)
_OWN = 'resource.name.extract("/instances/{name}").startsWith("spotctl-")'
_NOT_YET = re.compile(
    # A new account or role, an API that has just been enabled, a policy that others changed.
    r"service account \S+ does not exist|role \S+ does not exist|has not been used in project"
    r"|concurrent policy changes|pre-?conditions you specified did not hold",
    re.IGNORECASE,
)


class _Policy(NamedTuple):
    """A policy: what its permissions begin with, where it is, how it is read with its conditions
    (which only version 3 has) and written, and gcloud's words for whose it is."""

    kind: str
    url: str
    read: tuple[str, str, object]
    write: tuple[str, str]
    words: tuple[str, ...]


@contextmanager
def opened(
    settings: Settings, region: str, types: Sequence[str]
) -> Iterator[tuple[str, list[SetupStep], Mapping[str, Any]]]:
    """The project, its steps, and what jobs then say of it. Raises `CloudError` if no credentials
    are found.
    """
    region = region or os.environ.get("CLOUDSDK_COMPUTE_REGION", "")
    if not region:
        raise BadRequest("gcp: no region is configured; name one: --region us-central1")
    if types:
        metrics = (GPU_METRICS.get("-".join(name.split("-")[:2]), VCPUS) for name in types)
        asked = {"project": "PROJECT", "region": region, "limit": "LIMIT"}
        commands = [
            RAISE_COMMAND.format(quota=f"PREEMPTIBLE-{metric}".replace("_", "-"), **asked)
            for metric in dict.fromkeys(metrics)
        ]
        raise BadRequest(
            f"gcp: --type: spotctl requests no quotas of Google; request them at {QUOTAS}, or with "
            f"{'; '.join(commands)} (without PREEMPTIBLE- for machines on demand)"
        )
    access = GcpSettings(
        project=settings.text("gcp_project"),
        resource_manager_endpoint=settings.text("gcp_resource_manager_endpoint"),
        iam_endpoint=settings.text("gcp_iam_endpoint"),
        service_usage_endpoint=settings.text("gcp_service_usage_endpoint"),
    )
    with GcpSession(access) as session:
        steps = _Steps(session, settings, region)
        setting = "gcp", "service_account", steps.account, "machines get it"
        rights = steps.rights(session.member())
        rows = [*steps.things(), *rights, setting_step(settings, *setting)]
        yield session.project, rows, {"checkpoint": {"path": f"gs://{steps.bucket}/JOB/"}}


class _Steps:
    """The rows of a project."""

    def __init__(self, session: GcpSession, settings: Settings, region: str) -> None:
        self._session, self._settings, self._region = session, settings, region
        project = self._project = session.project
        self._own = f"{session.projects('iam')}/{project}"
        self._buckets = f"{endpoint()}/storage/v1/b"
        # Projects of a domain are named example.com:project.
        self.bucket = f"spotctl-{re.sub('[.:]', '-', project)}-{region}"
        name = ".".join(reversed(project.split(":")))
        self.account = f"{ACCOUNT}@{name}.iam.gserviceaccount.com"
        self._accounts = f"{self._own}/serviceAccounts"

    def things(self) -> Iterator[SetupStep]:
        """The needs of a project, apart from rights."""
        project, account, bucket = f"--project={self._project}", self.account, self.bucket
        services = f"{self._session.projects('serviceusage')}/{self._project}/services"
        names = "&".join(f"names=projects/{self._project}/services/{name}" for name in APIS)
        yield step_of_calls(
            self._send,
            "apis",
            f"APIs {', '.join(APIS)}",
            ("GET", f"{services}:batchGet?{names}", "serviceusage.services.get"),
            [
                (
                    "POST",
                    f"{services}:batchEnable",
                    "serviceusage.services.enable",
                    {"serviceIds": APIS},
                )
            ],
            None,
            lambda listed: all(each["state"] == "ENABLED" for each in listed["services"]),
        )._replace(commands=(_gcloud("services enable", *APIS, project),), settles=True)

        yield self._role(LAUNCHER, "gcp", "which allows launches")
        yield self._role(MACHINE, "gcp-machines", "by which machines delete themselves")

        right, title = "iam.serviceAccounts", "machines of spotctl"
        body = {"accountId": ACCOUNT, "serviceAccount": {"displayName": title}}
        yield step_of_calls(
            self._send,
            f"service account {ACCOUNT}",
            f"service account {account}, which machines get",
            ("GET", f"{self._accounts}/{account}", f"{right}.get"),
            [("POST", self._accounts, f"{right}.create", body)],
            [("DELETE", f"{self._accounts}/{account}", f"{right}.delete")],
        )._replace(
            commands=(
                _gcloud("iam service-accounts create", ACCOUNT, f"--display-name={title}", project),
            ),
            settles=True,
        )

        right = "storage.buckets"
        labels = dict(self._settings.table("gcp", GcpMachineSettings).labels)
        closed = {
            "publicAccessPrevention": "enforced",
            "uniformBucketLevelAccess": {"enabled": True},
        }
        body = {
            "name": bucket,
            "location": self._region,
            "iamConfiguration": closed,
            # Old checkpoints would be charged for a week.
            "softDeletePolicy": {"retentionDurationSeconds": "0"},
            "labels": labels,
        }
        flags = ["--uniform-bucket-level-access", "--public-access-prevention"]
        flags += [f"--location={self._region}", "--soft-delete-duration=0", project]
        yield step_of_calls(
            self._send,
            f"bucket {bucket}",
            f"bucket gs://{bucket} for checkpoints and outputs, closed to the public",
            ("GET", f"{self._buckets}/{bucket}", f"{right}.get"),
            [("POST", f"{self._buckets}?project={self._project}", f"{right}.create", body)],
            [("DELETE", f"{self._buckets}/{bucket}", f"{right}.delete")],
        )._replace(commands=(_gcloud("storage buckets create", f"gs://{bucket}", *flags),))

    def rights(self, launcher: str) -> Iterator[SetupStep]:
        """The rights of machines, and of who launches; of nothing that has no name."""
        account, bucket, write = self.account, self.bucket, ("POST", ":setIamPolicy")
        of_project = _Policy(
            "resourcemanager.projects",
            f"{self._session.projects('cloudresourcemanager')}/{self._project}",
            ("POST", ":getIamPolicy", {"options": {"requestedPolicyVersion": 3}}),
            write,
            ("projects", self._project),
        )
        of_account = _Policy(
            "iam.serviceAccounts",
            f"{self._accounts}/{account}",
            ("POST", ":getIamPolicy?options.requestedPolicyVersion=3", None),
            write,
            ("iam service-accounts", account, f"--project={self._project}"),
        )
        of_bucket = _Policy(
            "storage.buckets",
            f"{self._buckets}/{bucket}",
            ("GET", "/iam?optionsRequestedPolicyVersion=3", None),
            ("PUT", "/iam"),
            ("storage buckets", f"gs://{bucket}"),
        )
        machines = f"serviceAccount:{account}"
        data = f"projects/_/buckets/{bucket}/objects/{FOLDER}/"
        custom = f"projects/{self._project}/roles"
        for to, policy, name, condition, what in (
            (launcher, of_project, f"{custom}/{LAUNCHER}", "", "launch"),
            (launcher, of_account, "roles/iam.serviceAccountUser", "", "give machines the account"),
            (launcher, of_bucket, "roles/storage.objectUser", "", f"use gs://{bucket}"),
            (launcher, of_bucket, "roles/storage.legacyBucketReader", "", "see where it is"),
            (machines, of_project, f"{custom}/{MACHINE}", _OWN, "delete machines named spotctl-*"),
            (machines, of_bucket, "roles/storage.objectViewer", "", f"read gs://{bucket}"),
            (
                machines,
                of_bucket,
                "roles/storage.objectUser",
                f'!resource.name.startsWith("{data}")',
                f"write to gs://{bucket}, but not to {FOLDER}/",
            ),
        ):
            if to:
                yield self._grant(to, policy, name, condition, what)

    def _role(self, name: str, policy: str, what: str) -> SetupStep:
        """A role of the project. Google keeps one that was deleted for a week, in which no other
        can have its name."""
        document, right = role(policy, self._settings), "iam.roles"
        wanted = document["includedPermissions"]
        roles = f"{self._own}/roles"
        own = f"{roles}/{name}"
        newer = {"includedPermissions": wanted}
        renew = "PATCH", f"{own}?updateMask=includedPermissions", f"{right}.update", newer

        def make() -> None:
            try:
                self._send("POST", roles, f"{right}.create", {"roleId": name, "role": document})
            except RequestRejected as refused:
                try:
                    self._send("POST", f"{own}:undelete", f"{right}.undelete", {})
                except RequestRejected:
                    raise refused from None
                self._send(*renew)

        def is_same(kept: Mapping[str, Any]) -> bool | None:
            same = set(kept.get("includedPermissions", ())) == set(wanted)
            return False if kept.get("deleted") else same or None

        flags = [f"--project={self._project}", f"--title={document['title']}", "--stage=GA"]
        flags += [f"--description={document['description']}", f"--permissions={','.join(wanted)}"]
        return step_of_calls(
            self._send,
            f"role {name}",
            f"role {name}, {what}",
            ("GET", own, f"{right}.get"),
            [],
            [("DELETE", own, f"{right}.delete")],
            is_same,
        )._replace(
            make=make,
            renew=partial(self._send, *renew),
            commands=(_gcloud("iam roles create", name, *flags),),
        )

    def _grant(
        self, member: str, policy: _Policy, role_name: str, condition: str, what: str
    ) -> SetupStep:
        """The right of one member to do something."""
        binding: dict[str, Any] = {"role": role_name, "members": []}
        words = "None"
        if condition:
            binding["condition"] = {"title": "spotctl", "expression": condition}
            words = f"title=spotctl,expression={condition}"

        def read() -> tuple[dict[str, Any], list[dict[str, Any]]]:
            """The policy, and those of its bindings with this role and condition."""
            method, path, body = policy.read
            kept = self._send(method, policy.url + path, f"{policy.kind}.getIamPolicy", body)
            wanted = role_name, condition
            own = [
                each
                for each in kept.setdefault("bindings", [])
                if (each["role"], each.get("condition", {}).get("expression", "")) == wanted
            ]
            return kept, own

        def change(*, give: bool) -> None:
            try:
                kept, own = read()
            except UnknownResource as error:
                raise NotYet(str(error)) if give else error from None
            if give and not own:
                own = [binding | {"members": []}]
                kept["bindings"] += own
            for each in own:
                # The rights of an account that was deleted stay behind.
                each["members"] = [
                    name
                    for name in each["members"]
                    if name != member and not name.startswith(f"deleted:{member}?")
                ]
            if give:
                own[0]["members"].append(member)
            kept["bindings"] = [each for each in kept["bindings"] if each["members"]]
            if any("condition" in each for each in kept["bindings"]):
                kept["version"] = 3
            (method, path), right = policy.write, f"{policy.kind}.setIamPolicy"
            body = kept if method == "PUT" else {"policy": kept}
            self._send(method, policy.url + path, right, body)

        group, whose, *more = policy.words
        flags = [f"--member={member}", f"--role={role_name}", f"--condition={words}", *more]
        return SetupStep(
            f"{role_name} of {member} on {whose}",
            f"right of {member.partition(':')[2]} to {what}",
            lambda: any(member in each["members"] for each in read()[1]),
            partial(change, give=True),
            partial(change, give=False),
            (_gcloud(f"{group} add-iam-policy-binding", whose, *flags),),
        )

    def _send(self, method: str, url: str, right: str, body: object = None) -> dict[str, Any]:
        try:
            return self._session.rest(ApiCall(right, right), method, url, body)[0]
        except CloudError as error:
            if _NOT_YET.search(error.problem):
                raise NotYet(str(error)) from error
            raise


def _gcloud(command: str, *words: str) -> str:
    return f"gcloud {command} {shlex.join(words)}"
