"""What Azure checks of each request: who sent it, whether the caller's role permits it, and its
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.cloud.azure_fleet import LAUNCHER
from tests.cloud.azure_models import check_version
from tests.cloud.azure_state import ADDRESSES, DISKS, INTERFACES, RULES, VMS, Refused
from tests.servers.loopback import Request

SKIP = "$skiptoken"
MACHINE_ACTIONS = frozenset(
    f"Microsoft.{action}"
    for action in (
        "Compute/virtualMachines/read",
        "Compute/virtualMachines/delete",
        "Compute/disks/delete",
        "Network/networkInterfaces/delete",
        "Network/publicIPAddresses/delete",
    )
)


class Access:
    """`denied` are actions that the launcher's role lacks, and `checked` those it needed. `tokens`
    are machines'.

    `assigned` are the groups and principals for which the machines' role was assigned, `everywhere`
    the principals that have it in the whole subscription.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self.denied: set[str] = set()
        self.checked: set[str] = set()
        self.assigned: set[tuple[str, str]] = set()
        self.everywhere: set[str] = set()
        self._tokens = tokens

    def check(
        self, request: Request, action: str, scope: str, linked: bool = False, group: str = ""
    ) -> None:
        """Refuses a caller whose role lacks an action. A machine has its role for the groups where
        it was assigned.
        """
        caller = self.caller(request)
        if caller == LAUNCHER:
            self.checked.add(action)
            allowed = action not in self.denied
        else:
            has_role = caller in self.everywhere or (group.lower(), caller) in self.assigned
            allowed = action in MACHINE_ACTIONS and has_role
        if not allowed:
            what = f"does not have authorization to perform action '{action}' over scope '{scope}'"
            code = "LinkedAuthorizationFailed" if linked else "AuthorizationFailed"
            raise Refused(code, f"The client '{caller}' {what} or the scope is invalid.", 403)

    def caller(self, request: Request) -> str:
        """The launcher, or the principal whose token a machine sends."""
        token = request.headers.get("authorization", "")
        if not token:
            return LAUNCHER
        principal = self._tokens.get(token.removeprefix("Bearer "))
        if principal is None:
            raise Refused("InvalidAuthenticationToken", "The access token is invalid.", 401)
        return principal


def parameters(request: Request, kind: str, *allowed: str) -> dict[str, str]:
    """The parameters of a request. Refuses undocumented ones, and a version that the SDK does not
    know.
    """
    if any(len(values) > 1 for values in request.query.values()) or not {
        "api-version",
        SKIP,
        *allowed,
    } >= set(request.query):
        raise Refused(
            "InvalidQueryParameters",
            f"{sorted(request.query)} are not among api-version, {allowed}",
        )
    if "api-version" not in request.query:
        raise Refused(
            "MissingApiVersionParameter",
            "The api-version query parameter (?api-version=) is required.",
        )
    check_version(kind, request.query["api-version"][0], body=request.method == "PUT")
    return {name: values[0] for name, values in request.query.items()}


def spelled(kind: str) -> str:
    """A type as Azure writes it in actions."""
    known = (VMS, DISKS, INTERFACES, ADDRESSES, RULES, "Microsoft.Network/virtualNetworks")
    return next((one for one in known if one.lower() == kind.lower()), kind)
