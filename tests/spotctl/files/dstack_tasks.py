"""Twenty tasks of dstack, written anew in the forms of public ones, and values that changes put
into them.
"""

from __future__ import annotations

from typing import Any

import yaml

TASKS = """\
{name: plain, resources: {gpu: V100}, spot_policy: spot}
---
{name: counted, nodes: 2, resources: {gpu: 'A100:80GB:8'}, backends: [aws], regions: [us-east-1], spot_policy: spot}
---
{name: zones, resources: {gpu: 'L4:4'}, backends: [gcp], availability_zones: [us-central1-a], spot_policy: auto}
---
{name: processors, resources: {cpu: 8.., memory: 32GB..}, spot_policy: spot}
---
{name: exact, resources: {cpu: 4, memory: 16GB, disk: 256GB}, backends: [azure], regions: [eastus], spot_policy: spot}
---
{name: ranges, resources: {cpu: 4..16, memory: 16GB..64GB, disk: 100GB..1TB}, spot_policy: spot}
---
{name: instance, instance_types: [p4d.24xlarge], backends: [aws], regions: [us-west-2], spot_policy: spot}
---
{name: price, resources: {gpu: 'A10G:4'}, max_price: 3.25, backends: [aws], spot_policy: spot}
---
{name: demand, resources: {gpu: 'H100:8'}, spot_policy: on-demand}
---
{name: unsaid, resources: {gpu: 'T4:1'}}
---
{name: models, resources: {gpu: {name: [A100, H100], count: 8}}, spot_policy: spot}
---
{name: mapping, resources: {gpu: {name: A100, memory: 40GB, count: 2..4}}, spot_policy: spot}
---
{name: vendor, resources: {gpu: 'nvidia:T4:1'}, spot_policy: spot}
---
{name: memory-only, resources: {gpu: 24GB}, spot_policy: spot}
---
{name: arm, resources: {cpu: 'arm:8..', memory: 16GB..}, backends: [aws], spot_policy: spot}
---
{name: container, image: 'pytorch/pytorch:2.5.1-runtime', resources: {gpu: L4}, backends: [gcp], spot_policy: spot}
---
{name: variables, env: [LR=1e-4, SEED=7, HF_TOKEN], resources: {cpu: 2..}, spot_policy: spot}
---
{name: mapped, env: {LR: '1e-4', EMPTY: ''}, tags: {team: search}, resources: {cpu: 2..}, spot_policy: spot}
---
{name: elsewhere, nodes: 4, backends: [runpod, lambda], resources: {gpu: 'H100:8'}}
---
{name: everything, python: '3.12', nodes: 3, env: [MODEL=llama], ports: [8080], max_duration: 6h, priority: 10,
 resources: {cpu: 96.., memory: 1000GB.., gpu: 'A100:40GB:8', shm_size: 24GB, disk: 512GB}, backends: [aws, gcp],
 regions: [us-east-1], spot_policy: spot, max_price: 15, tags: {team: search}, idle_duration: 10m, retry: true}
"""

VALUES: dict[str, tuple[Any, ...]] = {
    "gpu": (
        "A100",
        "V100:4",
        "T4:2..",
        "A100:0",
        "A100:x",
        {"name": "L4", "count": 1},
        5,
        "80GB:2",
        "H100:..4",
    ),
    "cpu": (1, "3..", "64", 0, "x", "2..4..", True, "x86:8"),
    "memory": ("8GB", "24GB..", "0.5TB..", "512MB", 16, "x", "..64GB"),
    "disk": ("100GB", "300GB..", "2TB", 200, "x", {"size": "50GB.."}),
    "nodes": (1, 2, 16, "2", 0),
    "env": (["A=b", "C"], [], {"A": "b"}, ["A"], "A=b"),
    "tags": ({"a": "b"}, {}),
    "spot_policy": ("spot", "auto", "on-demand", "sometimes"),
    "backends": (["aws"], ["gcp", "azure"], ["runpod"], "aws"),
    "regions": (["us-east-1"], []),
    "instance_types": (["g5.xlarge"], "g5.xlarge"),
    "max_price": (0.5, 40, 0, "x"),
    "image": ("ubuntu:24.04", None),
}


def tasks() -> list[dict[str, Any]]:
    """The twenty."""
    return [
        {"type": "task", "commands": ["python train.py"], **task}
        for task in yaml.safe_load_all(TASKS)
    ]
