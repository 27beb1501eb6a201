"""Fault Injection Service for the simulated AWS: experiments that interrupt spot machines.

The SDK's client checks what a request may contain; here the printed policy is evaluated, and what
an experiment refers to must exist. Source: FIS User Guide,
"aws:ec2:send-spot-instance-interruptions".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from spotctl.clouds.aws.permissions import INTERRUPTION, TRIAL_POLICY
from tests.cloud.aws_books import NO_CAPACITY, Books
from tests.servers.iam import Access, allows
from tests.servers.loopback import Reply, Request

FIS_PATHS = ("/experimentTemplates", "/experiments")
_SERVICE = "fis.amazonaws.com"
_NOTICES = {"PT2M": 120.0}


class _Refused(Exception):
    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


@dataclass
class Experiments:
    """The templates and experiments of an account. `notice_seconds` shortens the notice of
    interruptions, which is two minutes; without `has_role`, the account lacks the role with which
    they act."""

    account: str
    books: Books
    notice_seconds: float = 120.0
    has_role: bool = True
    refused: list[Access] = field(default_factory=list)
    templates: dict[str, Any] = field(default_factory=dict)
    begun: dict[str, Any] = field(default_factory=dict)
    _numbers: Any = field(default_factory=count)

    def answer(self, request: Request) -> Reply:
        _, kind, *rest = request.path.split("/")
        handlers: dict[tuple[str, str], Callable[..., dict[str, Any]]] = {
            ("POST", "experimentTemplates"): self._make,
            ("POST", "experiments"): self._begin,
            ("GET", "experiments"): self._get,
            ("DELETE", "experimentTemplates"): self._delete,
        }
        try:
            return Reply.of_json(handlers[request.method, kind](request, *rest))
        except _Refused as error:
            body = json.dumps({"message": str(error)}).encode()
            return Reply(
                error.status,
                body,
                {"x-amzn-errortype": error.code, "content-type": "application/json"},
            )

    def _make(self, request: Request) -> dict[str, Any]:
        body = request.json()
        tags = {f"aws:RequestTag/{key}": value for key, value in body.get("tags", {}).items()}
        self._check(
            "fis:CreateExperimentTemplate", f"experiment-template/{next(self._numbers)}", tags
        )
        for action in body["actions"].values():
            self._check("fis:CreateExperimentTemplate", f"action/{action['actionId']}", tags)
        role = body["roleArn"]
        self._check_global("iam:PassRole", role, {"iam:PassedToService": _SERVICE})
        if not self.has_role:
            raise _Refused("ValidationException", f"The role {role} does not exist.")
        (target,), (action,) = body["targets"].values(), body["actions"].values()
        if (action["actionId"], target["resourceType"]) != (INTERRUPTION, "aws:ec2:spot-instance"):
            raise _Refused(
                "ValidationException", "Only interruptions of spot machines are simulated."
            )
        if action["parameters"]["durationBeforeInterruption"] not in _NOTICES:
            raise _Refused("ValidationException", "The duration must be between 2 and 15 minutes.")
        id_ = f"EXT{next(self._numbers)}"
        self.templates[id_] = body
        return {"experimentTemplate": {"id": id_}}

    def _begin(self, request: Request) -> dict[str, Any]:
        body = request.json()
        template = self._template(body["experimentTemplateId"])
        self._check(
            "fis:StartExperiment",
            f"experiment-template/{body['experimentTemplateId']}",
            _own(template),
        )
        tags = body.get("tags", {})
        self._check(
            "fis:StartExperiment",
            "experiment/new",
            {f"aws:RequestTag/{key}": value for key, value in tags.items()},
        )
        (target,) = template["targets"].values()
        experiment = {
            "id": f"EXP{next(self._numbers)}",
            "state": {"status": "initiating"},
            "tags": tags,
        }
        self.begun[experiment["id"]] = experiment
        try:
            for arn in target["resourceArns"]:
                lease = self.books.running(arn.rpartition("/")[2])
                self.books.evict(lease, NO_CAPACITY, self.notice_seconds)
            experiment["then"] = {"status": "running"}
        except (KeyError, ValueError):
            experiment["then"] = {
                "status": "failed",
                "reason": "Target resolution returned empty set",
            }
        return {"experiment": {key: experiment[key] for key in ("id", "state")}}

    def _get(self, request: Request, id_: str) -> dict[str, Any]:  # noqa: ARG002 - as all handlers
        experiment = self.begun[id_]
        self._check("fis:GetExperiment", f"experiment/{id_}", _own(experiment))
        return {"experiment": {"id": id_, "state": experiment["then"]}}

    def _delete(self, request: Request, id_: str) -> dict[str, Any]:  # noqa: ARG002
        self._check(
            "fis:DeleteExperimentTemplate", f"experiment-template/{id_}", _own(self._template(id_))
        )
        del self.templates[id_]
        return {"experimentTemplate": {"id": id_}}

    def _template(self, id_: str) -> Any:  # noqa: ANN401  # JSON
        if id_ not in self.templates:
            raise _Refused(
                "ResourceNotFoundException", f"Experiment template {id_} does not exist.", 404
            )
        return self.templates[id_]

    def _check(self, action: str, resource: str, context: dict[str, str]) -> None:
        self._check_global(action, f"arn:aws:fis:us-east-1:{self.account}:{resource}", context)

    def _check_global(self, action: str, resource: str, context: dict[str, str]) -> None:
        access = Access(action, resource, context)
        if not allows(TRIAL_POLICY, access):
            self.refused.append(access)
            raise _Refused(
                "AccessDeniedException", f"not authorized to perform {action} on {resource}", 403
            )


def _own(body: Any) -> dict[str, str]:  # noqa: ANN401  # JSON
    return {f"aws:ResourceTag/{key}": value for key, value in body.get("tags", {}).items()}
