"""`spotctl setup gcp` against the simulated project, which checks permissions and policies."""

from __future__ import annotations

import base64
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from spotctl.clouds.errors import ApiCall
from spotctl.clouds.gcp.calls import ALL
from spotctl.clouds.gcp.cloud import GcpMachineSettings, GcpSettings
from spotctl.clouds.gcp.session import GcpSession
from spotctl.clouds.gcp.setup import ACCOUNT, APIS, LAUNCHER, MACHINE
from spotctl.home import config
from tests.cloud.gcp import GcpServer
from tests.cloud.gcp_admin import MEMBER
from tests.cloud.host import Records
from tests.servers.gcp import PROJECT
from tests.servers.loopback import Fault, Reply, serving
from tests.spotctl.clouds.planned import plan
from tests.spotctl.command_line import spotctl

REGION = "us-central1"
BUCKET = f"spotctl-{PROJECT}-{REGION}"
EMAIL = f"{ACCOUNT}@{PROJECT}.iam.gserviceaccount.com"
MACHINES = f"serviceAccount:{EMAIL}"
WORDS = ("setup", "gcp", "--region", REGION)
EVERYTHING = {
    f"role {LAUNCHER}",
    f"role {MACHINE}",
    f"account {EMAIL}",
    f"bucket {BUCKET}",
    f"{MEMBER} projects/{PROJECT}/roles/{LAUNCHER} {PROJECT}",
    f"{MEMBER} roles/iam.serviceAccountUser {EMAIL}",
    f"{MEMBER} roles/storage.objectUser {BUCKET}",
    f"{MEMBER} roles/storage.legacyBucketReader {BUCKET}",
    f"{MACHINES} projects/{PROJECT}/roles/{MACHINE} {PROJECT}",
    f"{MACHINES} roles/storage.objectViewer {BUCKET}",
    f"{MACHINES} roles/storage.objectUser {BUCKET}",
}


Held = dict[tuple[str, str], set[str]]
"""Members by the roles and conditions of a policy."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpServer]:
    page = SimpleNamespace(answer=lambda _: Reply(200, b"203.0.113.7\n"))
    server = GcpServer(Records())
    with serving(page) as shown:
        monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("SPOTCTL_ADDRESS_URL", shown.url)
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
    server.close()


def gcp_settings() -> GcpMachineSettings:
    return config.load(dict(os.environ)).table("gcp", GcpMachineSettings)


def test_a_project_is_set_up_once_and_only_what_was_made_is_removed(server: GcpServer) -> None:
    admin = server.admin
    theirs = {"role": "roles/owner", "members": ["user:owner@example.com"]}
    admin.policies[PROJECT] = {"etag": "7", "version": 1, "bindings": [theirs]}
    before = admin.things()

    asked = spotctl(*WORDS)
    assert (asked.code, admin.changes, admin.things()) == (2, 0, before)
    assert f"would make  bucket gs://{BUCKET}" in asked.err

    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert admin.things() == EVERYTHING | before
    assert made.out == f"checkpoint: {{path: gs://{BUCKET}/JOB/}}\n"
    assert (gcp_settings().service_account, gcp_settings().ssh_from) == (EMAIL, ("203.0.113.7/32",))

    changes = admin.changes
    again = spotctl(*WORDS, "--yes")
    assert (again.code, admin.changes) == (0, changes)
    assert not {"would make", "is older"} & {line[:10] for line in again.err.splitlines()}

    undone = spotctl(*WORDS, "--undo")
    assert (undone.code, admin.things()) == (0, before), undone.err
    assert (gcp_settings().service_account, gcp_settings().ssh_from) == (None, ())


def test_launchers_then_have_all_rights_and_machines_no_further_ones(
    server: GcpServer, tmp_path: Path
) -> None:
    assert spotctl(*WORDS, "--yes").code == 0
    server.admin.owner = False
    findings = spotctl("doctor", "gcp", "--json").json["findings"]
    about = {one["what"]: one["level"] for one in findings if one["about"] == "gcp"}
    assert (about["permissions"], about["service account"]) == ("good", "good")

    assert plan(tmp_path, "gcp", REGION, "n2-standard-4").code == 0

    bound = {
        each["role"]: each["condition"]["expression"]
        for policy in server.admin.policies.values()
        for each in policy["bindings"]
        if "condition" in each
    }
    writes = f'!resource.name.startsWith("projects/_/buckets/{BUCKET}/objects/spotctl-data/")'
    assert bound["roles/storage.objectUser"] == writes
    assert 'startsWith("spotctl-")' in bound[f"projects/{PROJECT}/roles/{MACHINE}"]
    closed = server.admin.buckets[BUCKET]["iamConfiguration"]
    assert closed["publicAccessPrevention"] == "enforced"


def test_a_new_project_whose_apis_and_accounts_are_known_late(
    server: GcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotctl.clouds.setup._FIRST_PAUSE", 0.01)
    server.admin.apis.update(iam=False, compute=False, cloudresourcemanager=False)
    server.admin.settling, server.admin.late, server.admin.rivals = 3, 2, 3
    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    rivals = {name for name in server.admin.things() if "rival" in name}
    assert len(rivals) == 3
    assert server.admin.things() == EVERYTHING | rivals
    assert "stamina" not in made.err
    server.admin.rivals = 2
    assert spotctl(*WORDS, "--undo").code == 0
    rivals |= {f"user:rival{number}@example.com roles/viewer {BUCKET}" for number in range(2)}
    assert server.admin.things() == {name for name in rivals if name.endswith(PROJECT)}
    assert all(server.admin.apis.values())


MEMBERS = st.sampled_from([MEMBER, MACHINES, "user:ada@example.com", "group:all@example.com"])
ROLES = st.sampled_from(
    ["roles/viewer", f"projects/{PROJECT}/roles/{LAUNCHER}", f"projects/{PROJECT}/roles/{MACHINE}"]
)
CONDITIONS = st.sampled_from(
    ["", "true", 'resource.name.extract("/instances/{name}").startsWith("spotctl-")']
)
HELD = st.dictionaries(st.tuples(ROLES, CONDITIONS), st.sets(MEMBERS, min_size=1), max_size=4)


@settings(max_examples=15, deadline=None)
@given(HELD)
def test_policies_of_others_are_as_they_were_after_undoing(held: Held) -> None:
    """Rights that others have stay, and so does the rest of a policy."""
    server = GcpServer(Records())
    admin, audits = server.admin, [{"service": "allServices"}]
    document = (
        {"includedPermissions": [*ALL]},
        {"includedPermissions": ["compute.instances.delete"]},
    )
    admin.roles |= dict(zip((LAUNCHER, MACHINE), document, strict=True))
    admin.accounts[EMAIL] = {"email": EMAIL, "uniqueId": "1"}
    bindings = [
        {"role": role, "members": sorted(members)}
        | ({"condition": {"title": "own", "expression": text}} if text else {})
        for (role, text), members in held.items()
    ]
    policy = {"etag": "1", "version": 3, "bindings": bindings, "auditConfigs": audits}
    admin.policies[PROJECT] = policy
    with tempfile.TemporaryDirectory() as folder:
        given_words = {**server.environment(), "SPOTCTL_HOME": folder}
        given_words["SPOTCTL_GCP"] = 'ssh_from = ["10.0.0.0/8"]'
        made = spotctl(*WORDS, "--yes", **given_words)
        assert made.code == 0, made.err
        now = held_in(admin.policies[PROJECT])
        assert all(members <= now[key] for key, members in held.items())
        assert MEMBER in now[f"projects/{PROJECT}/roles/{LAUNCHER}", ""]
        assert spotctl(*WORDS, "--undo", **given_words).code == 0
    assert held_in(admin.policies[PROJECT]) == held
    assert admin.policies[PROJECT]["auditConfigs"] == audits
    server.close()


def held_in(policy: dict[str, Any]) -> Held:
    return {
        (each["role"], each.get("condition", {}).get("expression", "")): set(each["members"])
        for each in policy["bindings"]
    }


def test_roles_that_were_deleted_come_back_within_a_week(server: GcpServer) -> None:
    for _ in range(2):
        assert spotctl(*WORDS, "--yes").code == 0
        assert server.admin.things() == EVERYTHING
        assert spotctl(*WORDS, "--undo").code == 0
    assert server.admin.things() == set()
    server.admin.lost.add(LAUNCHER)
    refused = spotctl(*WORDS, "--yes")
    assert (refused.code, "which has been marked for deletion" in refused.err) == (1, True)
    assert server.admin.things() == set()


def test_an_answer_that_fails_once_is_asked_for_again(server: GcpServer) -> None:
    busy = Reply.of_json({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, 503)
    server.http.faults.append(Fault(f"/roles/{LAUNCHER}", busy))
    assert spotctl(*WORDS, "--yes").code == 0
    server.http.faults.append(Fault(":setIamPolicy", busy))
    assert spotctl(*WORDS, "--undo").code == 1
    assert spotctl(*WORDS, "--undo").code == 0
    assert server.admin.things() == set()


def test_an_older_role_is_renewed_and_stays(server: GcpServer) -> None:
    old = {"name": LAUNCHER, "includedPermissions": ["compute.instances.get"]}
    server.admin.roles[LAUNCHER] = old
    made = spotctl(*WORDS, "--yes")
    assert (made.code, f"is older    role {LAUNCHER}, which" in made.err) == (0, True)
    assert "compute.instances.create" in server.admin.roles[LAUNCHER]["includedPermissions"]
    assert spotctl(*WORDS, "--undo").code == 0
    assert server.admin.things() == {f"role {LAUNCHER}"}


def test_a_bucket_with_objects_and_settings_of_others_are_left(server: GcpServer) -> None:
    path = Path(os.environ["SPOTCTL_HOME"]) / "config.toml"
    path.parent.mkdir()
    path.write_text('[gcp]\nservice_account = "mine@example.com"\nssh_from = ["10.0.0.0/8"]\n')
    assert spotctl(*WORDS, "--yes").code == 0
    assert gcp_settings().service_account == "mine@example.com"
    server.buckets.store.others[BUCKET].objects["kept"] = SimpleNamespace()  # type: ignore[assignment]
    undone = spotctl(*WORDS, "--undo")
    assert (undone.code, "is not empty" in undone.err) == (1, True)
    assert server.admin.things() == {f"bucket {BUCKET}"}
    assert gcp_settings().service_account == "mine@example.com"


def test_rights_of_an_account_that_was_deleted_go_with_it(server: GcpServer) -> None:
    assert spotctl(*WORDS, "--yes").code == 0
    session = GcpSession(GcpSettings(project=PROJECT, iam_endpoint=server.http.url))
    url = f"{session.projects('iam')}/{PROJECT}/serviceAccounts/{EMAIL}"
    session.rest(ApiCall("", ""), "DELETE", url)
    assert any(name.startswith("deleted:") for name in server.admin.things())
    again = spotctl(*WORDS, "--yes")
    assert again.code == 0, again.err
    assert {name for name in server.admin.things() if not name.startswith("deleted:")} == EVERYTHING
    assert spotctl(*WORDS, "--undo").code == 0
    assert server.admin.things() == set()


@pytest.mark.parametrize(
    "right",
    [
        "serviceusage.services.enable",
        "iam.roles.create",
        "iam.serviceAccounts.create",
        "storage.buckets.create",
        "resourcemanager.projects.setIamPolicy",
        "iam.serviceAccounts.setIamPolicy",
        "storage.buckets.setIamPolicy",
        "iam.roles.get",
        "storage.buckets.get",
    ],
)
def test_a_missing_right_is_named_and_nothing_is_half_made(server: GcpServer, right: str) -> None:
    server.admin.apis["compute"] = False
    server.denied.add(right)
    refused = spotctl(*WORDS, "--yes")
    assert (refused.code, right in refused.err.splitlines()[-1]) == (5, True), refused.err
    assert server.admin.things() == set()
    assert not gcp_settings().service_account


FLAGS = {
    "services enable": {"project"},
    "iam roles create": {"project", "title", "stage", "description", "permissions"},
    "iam service-accounts create": {"project", "display-name"},
    "storage buckets create": {
        "project",
        "location",
        "uniform-bucket-level-access",
        "public-access-prevention",
        "soft-delete-duration",
    },
    "projects add-iam-policy-binding": {"member", "role", "condition"},
    "iam service-accounts add-iam-policy-binding": {"project", "member", "role", "condition"},
    "storage buckets add-iam-policy-binding": {"member", "role", "condition"},
}
"""Commands and flags of https://cloud.google.com/sdk/gcloud/reference."""


def test_printed_commands_are_ones_of_gcloud(server: GcpServer) -> None:
    lines = spotctl(*WORDS, "--print").out.splitlines()
    used = set[str]()
    for line in lines:
        program, *words = shlex.split(line)
        flags = [word for word in words if word.startswith("--")]
        command = " ".join(words).partition(" --")[0]
        name = max((name for name in FLAGS if command.startswith(name)), key=len)
        used.add(name)
        assert program == "gcloud"
        assert {flag[2:].partition("=")[0] for flag in flags} <= FLAGS[name]
        assert len(command.removeprefix(name).split()) == (len(APIS) if "services e" in name else 1)
    assert (used, len(lines)) == (set(FLAGS), 12)
    assert server.admin.changes == 0


def test_a_region_is_needed_and_types_have_no_quotas_here(server: GcpServer) -> None:
    assert "name one: --region" in spotctl("setup", "gcp").err
    said = spotctl(*WORDS, "--type", "g2-standard-4", "--type", "n2-standard-4").err
    for words in (
        "console.cloud.google.com/iam-admin/quotas, or with gcloud beta quotas preferences create",
        "--quota-id=PREEMPTIBLE-NVIDIA-L4-GPUS-per-project-region --dimensions=region=us-central1",
        "--quota-id=PREEMPTIBLE-CPUS-per-project-region",
    ):
        assert words in said
    assert server.admin.changes == 0


def test_a_user_is_named_by_the_token_of_the_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of gcloud auth application-default login, whose token server names the user."""
    claims = base64.urlsafe_b64encode(json.dumps({"email": "ada@example.com"}).encode()).decode()
    token = f"e30.{claims.rstrip('=')}.c2lnbmF0dXJl"
    answer = {"access_token": "t", "expires_in": 3599, "id_token": token}
    page = SimpleNamespace(answer=lambda _: Reply.of_json(answer))
    with serving(page) as server:
        about = {"type": "authorized_user", "client_id": "1", "client_secret": "2"}
        about |= {"refresh_token": "3"}
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", server.url)
        (tmp_path / "adc.json").write_text(json.dumps(about))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
        assert GcpSession(GcpSettings(project=PROJECT)).member() == "user:ada@example.com"
        assert b"scope" not in server.requests[0].body
        del answer["id_token"]
        assert GcpSession(GcpSettings(project=PROJECT)).member() == ""


@pytest.mark.parametrize("calls", range(1, 12))
def test_a_command_that_was_killed_is_repeated_and_undone(
    server: GcpServer, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    class Killed(BaseException):
        pass

    usual = GcpSession.rest

    def rest(self: GcpSession, *given: Any) -> Any:  # noqa: ANN401
        answer = usual(self, *given)
        # The call was made, and its answer is lost.
        if server.admin.changes == calls:
            raise Killed
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(GcpSession, "rest", rest)
        with pytest.raises(Killed):
            spotctl(*WORDS, "--yes")
    assert spotctl(*WORDS, "--yes").code == 0
    assert server.admin.things() == EVERYTHING
    assert spotctl(*WORDS, "--undo").code == 0
    assert server.admin.things() == set()
