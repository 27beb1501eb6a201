"""Refusals of a new AWS account, in the words of EC2, as users have published them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cloud.aws_orders import Order, refuse
from tests.servers.iam import Access, allows

# https://github.com/aws-samples/eks-workshop-v2/issues/1644
FREE_TYPES = frozenset(
    "t3.micro t3.small t4g.micro t4g.small c7i-flex.large m7i-flex.large".split()
)
SPOT = "spot.amazonaws.com"


@dataclass
class NewAccount:
    """`free_plan`: only few types. `verifying`: nothing is rented yet. Without `has_spot_role`, the
    first spot machine makes the role, if a policy allows that. `unknown_profiles` are orders for
    which EC2 does not know a profile yet."""

    free_plan: bool = False
    verifying: bool = False
    has_spot_role: bool = True
    unknown_profiles: dict[str, int] = field(default_factory=dict)

    def check_profile(self, order: Order) -> None:
        """https://github.com/aws/karpenter-provider-aws/pull/7849: dry runs say it, too."""
        left = self.unknown_profiles.get(order.profile or "", 0)
        if left > 0:
            self.unknown_profiles[str(order.profile)] = left - 1
            value = f"Value ({order.profile}) for parameter iamInstanceProfile.name is invalid."
            raise refuse("InvalidParameterValue", f"{value} Invalid IAM Instance Profile name")

    def check(self, order: Order, account: str, policy: Mapping[str, Any] | None) -> None:
        """Refuses an order that is no dry run."""
        if self.verifying:
            raise refuse(
                "PendingVerification",
                "Your request for accessing resources in this region is being validated, and you "
                "will not be able to"
                " launch additional resources in this region until the validation is complete.",
            )
        if self.free_plan and order.type not in FREE_TYPES:
            raise refuse(
                "InvalidParameterCombination",
                "The specified instance type is not eligible for Free Tier. For a list of Free "
                "Tier instance types, run"
                " 'describe-instance-types' with the filter 'free-tier-eligible=true'.",
            )
        if order.spot and not self.has_spot_role:
            role = f"arn:aws:iam::{account}:role/aws-service-role/{SPOT}/AWSServiceRoleForEC2Spot"
            made = Access("iam:CreateServiceLinkedRole", role, {"iam:AWSServiceName": SPOT})
            if policy is not None and not allows(policy, made):
                raise refuse(
                    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
                    "The provided credentials do not have permission to create the service-linked "
                    "role for EC2 Spot Instances.",
                )
            self.has_spot_role = True
