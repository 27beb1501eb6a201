"""The minimal permissions that spotctl needs in each cloud, and their policy documents. Pure."""

from __future__ import annotations

from typing import Any

from spotctl.machines.tags import RUN_TAG

AWS_READ = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeKeyPairs",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "ec2:DescribeVpcs",
    "ec2:GetSpotPlacementScores",
    "pricing:GetProducts",
    "servicequotas:GetServiceQuota",
)
AWS_MAKE = (
    "ec2:CreateFleet",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateSecurityGroup",
    "ec2:ImportKeyPair",
    "ec2:RunInstances",
)
AWS_OWN = (
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:DeleteKeyPair",
    "ec2:DeleteLaunchTemplate",
    "ec2:DeleteSecurityGroup",
    "ec2:DeleteVolume",
    "ec2:RevokeSecurityGroupIngress",
    "ec2:StopInstances",
    "ec2:TerminateInstances",
)
"""Allowed only on resources with spotctl's own tag."""

GCP = (
    "compute.advice.capacityHistory",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.list",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.machineTypes.list",
    "compute.networks.updatePolicy",
    "compute.projects.get",
    "compute.regions.get",
    "compute.regions.list",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zones.list",
)

AZURE = (
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/delete",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.ResourceGraph/resources/read",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
    "Microsoft.Resources/subscriptions/resourceGroups/write",
)


def aws() -> dict[str, Any]:
    """An IAM policy."""
    tagged = {"StringEquals": {"ec2:CreateAction": [action.partition(":")[2] for action in AWS_MAKE]}}
    spot = {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
    own = {"Null": {f"aws:ResourceTag/{RUN_TAG}": "false"}}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "Look", "Effect": "Allow", "Action": list(AWS_READ), "Resource": "*"},
            {"Sid": "Make", "Effect": "Allow", "Action": list(AWS_MAKE), "Resource": "*"},
            {"Sid": "Tag", "Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*", "Condition": tagged},
            {
                "Sid": "FirstSpot",
                "Effect": "Allow",
                "Action": "iam:CreateServiceLinkedRole",
                "Resource": "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*",
                "Condition": spot,
            },
            {"Sid": "OwnOnly", "Effect": "Allow", "Action": list(AWS_OWN), "Resource": "*", "Condition": own},
        ],
    }


def gcp() -> dict[str, Any]:
    """A custom role, as `gcloud iam roles create spotctl --project PROJECT --file FILE` reads it."""
    return {
        "title": "spotctl",
        "description": "The minimal permissions that spotctl needs to rent machines.",
        "stage": "GA",
        "includedPermissions": list(GCP),
    }


def azure(subscription: str) -> dict[str, Any]:
    """A custom role, as `az role definition create --role-definition FILE` reads it."""
    return {
        "Name": "spotctl",
        "IsCustom": True,
        "Description": "The minimal permissions that spotctl needs to rent machines.",
        "Actions": list(AZURE),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": [f"/subscriptions/{subscription or 'SUBSCRIPTION'}"],
    }
