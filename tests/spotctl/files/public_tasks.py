"""`python -m tests.spotctl.files.public_tasks`: five tasks of SkyPilot's repository and five of
dstack's, as jobs.

Each has the keys and values of a public file, whose place the table names, and short commands of
our own. Prints for each what `spotctl init FILE` carries, and what it lists as without a
counterpart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spotctl.files.job.reader import loads
from spotctl.files.tasks.draft import JobDraft
from spotctl.files.tasks.dstack import dstack_draft
from spotctl.files.tasks.skypilot import skypilot_draft
from spotctl.files.yaml_file import parse

SKYPILOT = {
    "llm/axolotl/axolotl-spot.yaml": """\
name: axolotl
resources:
  accelerators: A100:1
  cloud: gcp
  use_spot: True
  image_id: docker:winglian/axolotl:main-py3.10-cu118-2.0.1
workdir: .
file_mounts:
  /sky-notebook: {name: '${BUCKET}', mode: MOUNT}
envs: {HF_TOKEN: null, BUCKET: null}
run: python train.py --out /sky-notebook
""",
    "llm/gpt-2/gpt2-train.yaml": """\
name: train
resources:
  accelerators: A100:8
  any_of:
    - cloud: gcp
      image_id: projects/deeplearning-platform-release/global/images/common-cu122-v20240514-ubuntu-2204-py310
    - cloud: aws
    - cloud: azure
    - cloud: lambda
    - cloud: runpod
    - cloud: paperspace
    - cloud: fluidstack
    - cloud: kubernetes
file_mounts:
  ~/.cache/huggingface: gs://gpt2-data-skypilot
setup: make
run: mpirun -np $SKYPILOT_NUM_GPUS_PER_NODE ./train
""",
    "llm/llama-3_1-finetuning/lora.yaml": """\
envs:
  MODEL_SIZE: 8B
  HF_TOKEN:
  DATASET: some/data
  CHECKPOINT_BUCKET_NAME: sky-llama-31-checkpoints
resources:
  accelerators: A100:8
  disk_tier: best
  use_spot: true
file_mounts:
  /configs: ./configs
  /output:
    name: $CHECKPOINT_BUCKET_NAME
    mode: MOUNT
setup: pip install torch
run: python train.py --config /configs/$MODEL_SIZE.yaml --data $DATASET --out /output
""",
    "examples/distributed-pytorch/train-rdzv.yaml": """\
name: minGPT-ddp-rdzv
resources:
  cpus: 4+
  accelerators: L4:2
num_nodes: 2
setup: pip install torch
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
    --rdzv_endpoint=$(echo "$SKYPILOT_NODE_IPS" | head -n1):29500 --rdzv_id $SKYPILOT_TASK_ID main.py
""",
    "examples/deepspeed-multinode/sky.yaml": """\
resources:
  accelerators: A100:1
num_nodes: 2
envs: {MY_VAR_1: hello, MY_VAR_2: world, DEEPSPEED_ENVS: 'MY_VAR_1,MY_VAR_2,SKYPILOT_NODE_RANK'}
file_mounts:
  ~/.ssh/id_rsa: ~/.ssh/sky-key
setup: pip install deepspeed
run: |
  if [ "${SKYPILOT_NODE_RANK}" == "0" ]; then deepspeed --hostfile hosts main.py; fi
""",
}
DSTACK = {
    "examples/distributed-training/axolotl/.dstack.yml": """\
type: task
name: axolotl-multi-node-qlora-llama3-70b
nodes: 2
image: nvcr.io/nvidia/pytorch:25.01-py3
env: [HF_TOKEN, WANDB_API_KEY, WANDB_PROJECT, HUB_MODEL_ID, NCCL_DEBUG=INFO, ACCELERATE_LOG_LEVEL=info]
commands: [python train.py --nodes $DSTACK_NODES_NUM --address $DSTACK_MASTER_NODE_IP]
resources: {gpu: '80GB:8', shm_size: 128GB}
volumes: ['/checkpoints:/checkpoints']
""",
    "examples/distributed-training/torchrun/.dstack.yml": """\
type: task
name: train-distrib
nodes: 2
python: 3.12
env: [NCCL_DEBUG=INFO]
commands: [torchrun --nproc-per-node=$DSTACK_GPUS_PER_NODE --node-rank=$DSTACK_NODE_RANK multinode.py]
resources: {gpu: 1..8, shm_size: 16GB}
""",
    "examples/distributed-training/trl/fsdp.dstack.yml": """\
type: task
name: trl-train-fsdp-distrib
nodes: 2
image: nvcr.io/nvidia/pytorch:25.01-py3
env: [HF_TOKEN, WANDB_API_KEY, HUB_MODEL_ID, MODEL_ID=meta-llama/Llama-3.1-8B, ACCELERATE_LOG_LEVEL=info]
commands: [python sft.py --model $MODEL_ID --rank $DSTACK_NODE_RANK --out /checkpoints/llama31-ft]
resources: {gpu: '80GB:8', shm_size: 128GB}
volumes: ['/checkpoints:/checkpoints']
""",
    "examples/fine-tuning/alignment-handbook/train.dstack.yml": """\
type: task
name: ah-train
python: "3.10"
env: [HUGGING_FACE_HUB_TOKEN, ACCELERATE_LOG_LEVEL=info, WANDB_API_KEY]
commands: [pip install ., python run_sft.py --gpus $DSTACK_GPUS_NUM]
ports: [6006]
resources: {gpu: 24GB}
""",
    "examples/fine-tuning/qlora/train.dstack.yml": """\
type: task
python: "3.11"
env: [HUGGING_FACE_HUB_TOKEN, HF_HUB_ENABLE_HF_TRANSFER=1]
commands: ['python train.py --merge_and_push ${{ run.args }}']
ports: [6006]
resources: {gpu: 16GB..24GB}
""",
}
TASKS = [("SkyPilot", place, text) for place, text in SKYPILOT.items()]
TASKS += [("dstack", place, text) for place, text in DSTACK.items()]


def draft_of(tool: str, text: str) -> JobDraft:
    """The draft of a task, which is a job that the reader accepts."""
    draft = (dstack_draft if tool == "dstack" else skypilot_draft)(
        parse(text, Path("task.yaml")), Path()
    )
    loads(draft.text("task"), Path("job.yaml"))
    return draft


def parts(content: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a task, with those of its resources and mounts, as init lists them."""
    for key, value in content.items():
        yield from (
            (f"{key}.{inner}" for inner in value) if key in ("resources", "file_mounts") else (key,)
        )


def listed(draft: JobDraft) -> list[str]:
    """The keys that init lists, each once."""
    return list(dict.fromkeys(key.removeprefix("resources.") for _, key, _ in draft.listed()))


def carried(draft: JobDraft) -> list[str]:
    """The keys of a task of which nothing is listed."""
    content = draft.file.content
    assert isinstance(content, dict)
    found = [part.removeprefix("resources.") for part in parts(content)]
    return [part for part in found if part not in listed(draft) and part != "type"]


def main() -> None:
    """Prints a row for each task."""
    rows = ["| tool | file | carried | listed |", "| --- | --- | --- | --- |"]
    for tool, place, text in TASKS:
        draft = draft_of(tool, text)
        rows.append(
            f"| {tool} | {place} | {', '.join(carried(draft))} | {', '.join(listed(draft))} |"
        )
    sys.stdout.writelines(f"{row}\n" for row in rows)


if __name__ == "__main__":
    main()
