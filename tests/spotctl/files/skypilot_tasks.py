"""Twenty tasks of SkyPilot, written anew in the forms of public ones, and values that changes put
into them.
"""

from __future__ import annotations

from typing import Any

import yaml

TASKS = """\
name: plain
resources: {accelerators: V100:1, use_spot: true}
run: python train.py
---
name: on-demand
resources: {cloud: aws, region: us-east-1, accelerators: {A100: 8}}
num_nodes: 2
run: torchrun --nnodes=$SKYPILOT_NUM_NODES train.py
---
name: infra
resources: {infra: gcp/us-central1/us-central1-a, accelerators: L4:4, use_spot: true, disk_size: 256}
run: python train.py
---
name: any-infra
resources: {infra: '*', cpus: 8+, memory: 32+, use_spot: true}
run: python prepare.py
---
name: exact
resources: {cpus: 4, memory: 16, cloud: azure, region: eastus, use_spot: true}
run: python prepare.py
---
name: memory-units
resources: {cpus: '16', memory: 64GB+, disk_size: 1TB, use_spot: true}
run: python prepare.py
---
name: instance
resources: {cloud: aws, instance_type: p4d.24xlarge, region: us-west-2, zone: us-west-2b, use_spot: true}
run: python train.py
---
name: any-of-places
resources:
  accelerators: H100:8
  use_spot: true
  any_of:
    - {cloud: aws, region: us-east-1}
    - {cloud: gcp, region: us-central1}
run: python train.py
---
name: ordered
resources:
  use_spot: true
  ordered:
    - {infra: aws/us-east-1, accelerators: A100:8}
    - {infra: gcp/us-central1, accelerators: V100:8}
run: python train.py
---
name: several-models
resources: {accelerators: ['A100:8', 'H100:8'], use_spot: true}
run: python train.py
---
name: set-of-models
resources: {accelerators: {'T4:1', 'L4:1'}, use_spot: true}
run: python train.py
---
name: alias
resources: {gpus: T4, infra: gcp, use_spot: true}
run: python train.py
---
name: price
resources: {accelerators: A10G:4, use_spot: true, max_hourly_cost: 3.25, infra: aws}
run: python train.py
---
name: container
resources: {image_id: 'docker:pytorch/pytorch:2.5.1-runtime', accelerators: L4, infra: gcp, use_spot: true}
run: python train.py
---
name: variables
envs: {LR: 1e-4, SEED: 7, EMPTY: ''}
secrets: {HF_TOKEN: null, WANDB_API_KEY: abc}
resources: {cpus: 2+, use_spot: true}
run: python train.py --lr $LR --seed $SEED
---
name: mounts
envs: {BUCKET: results}
file_mounts:
  /data: s3://corpus/imagenet
  /weights: gs://models/llama
  ~/configs: ./configs
workdir: .
resources: {accelerators: A100-80GB:4, use_spot: true}
setup: |
  pip install -r requirements.txt
  if [[ -d /data ]]; then echo there; fi
run: |
  python train.py --data /data
---
name: recovery
resources:
  accelerators: V100:8
  use_spot: true
  job_recovery: {strategy: EAGER_NEXT_REGION, max_restarts_on_errors: 3}
  disk_tier: best
  ports: [8080, 6006]
  labels: {team: search}
run: python train.py
---
name: half
resources: {accelerators: 'L4:0.5', cpus: 2.5+, use_spot: true}
run: python train.py
---
name: elsewhere
resources: {infra: kubernetes, accelerators: H100:8}
num_nodes: 4
run: python train.py
---
name: everything
num_nodes: 3
workdir: .
envs: {MODEL: llama}
resources:
  infra: aws/us-east-1/us-east-1a
  accelerators: A100:8
  cpus: 96+
  memory: 1000+
  use_spot: true
  disk_size: 512
  max_hourly_cost: 15
  labels: {team: search, Owner: Me}
  autostop: {idle_minutes: 10}
setup: pip install torch
run: |
  echo $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES at $SKYPILOT_NODE_IPS
  torchrun --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE train.py
"""

VALUES: dict[str, tuple[Any, ...]] = {
    "accelerators": ("A100", "V100:4", {"T4": 2}, "A100:0", "A100:x", "H100:1.0", ["L4:1"], 5),
    "cpus": (1, "3+", "64", 0, "x", "2++", True),
    "memory": (8, "24+", "0.5TB+", "512MB", "16 GB", "x", 0),
    "disk_size": (100, "300GB", "2TB", "0.5TB", "x"),
    "use_spot": (True, False, "yes"),
    "infra": (
        "aws",
        "gcp/us-central1",
        "aws//us-east-1a",
        "*/us-east-1",
        "azure/eastus",
        "AWS/us-east-1",
    ),
    "max_hourly_cost": (0.5, 40, 0, "x"),
    "cloud": ("aws", "GCP", "azure"),
    "image_id": ("docker:ubuntu:24.04", None),
    "num_nodes": (1, 2, 16, "2"),
    "envs": ({"A": "b", "C": 3}, {}),
    "secrets": ({"A": None}, ["secrets:B"], {"C": "x"}),
    "labels": ({"a": "b"}, {"A B": "c"}),
}


def tasks() -> list[dict[str, Any]]:
    """The twenty."""
    return list(
        yaml.safe_load_all(TASKS.replace("{'T4:1', 'L4:1'}", "{'T4:1': null, 'L4:1': null}"))
    )
