"""`python -m tests.spotctl.files.converted_scripts [SCRIPT...]`: five trainings as people publish
them, as trainers.

Each is written in the manner of a public script, on small synthetic data. Prints how many lines
change, and the loss over the training set after the script's own loop in one process, and after as
many steps of the trainer on three simulated nodes, two of which are killed.
"""

from __future__ import annotations

import io
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

import agileml
from agileml.runtime.prepared_job import isolated
from spotctl.trials.trainer import compared_trainer

SCRIPTS = Path(__file__).parent / "trainer_scripts" / "public"
FAULTS = "at clock 3 kill 1; at clock 6 kill 1; at clock 9 join 1"


@dataclass(frozen=True)
class ConvertedScript:
    """A script's way, and the lines that change: the old ones, and the new ones."""

    way: str = "init --trainer"
    changes: Sequence[tuple[str, str]] = ()


LANGUAGE = (
    (
        "import torch.nn.functional as F\n",
        "import torch.nn.functional as F\nfrom torch.utils.data import DataLoader, Dataset\n",
    ),
    (
        "lr = 5.0\n",
        """class Windows(Dataset):
    def __len__(self):
        return (len(train_data) - 1) // BPTT * BATCH

    def __getitem__(self, number):
        start, column = number // BATCH * BPTT, number % BATCH
        return train_data[start : start + BPTT, column], train_data[start + 1 : start + 1 + BPTT, column]


loader = DataLoader(Windows(), batch_size=BATCH)
optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
""",
    ),
    (
        """    for start in range(0, len(train_data) - 1, BPTT):
        data, targets = get_batch(train_data, start)
        model.zero_grad()
        loss = criterion(model(data), targets)
""",
        """    for data, targets in loader:
        model.zero_grad()
        loss = criterion(model(data.t()), targets.t().flatten())
""",
    ),
    (
        """        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
""",
        "        optimizer.step()\n",
    ),
)
NANOGPT = (
    (
        "import torch.nn.functional as F\n",
        "import torch.nn.functional as F\nfrom torch.utils.data import DataLoader, Dataset, "
        "RandomSampler\n",
    ),
    (
        """def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,), generator=drawn)
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y
""",
        """class Windows(Dataset):
    def __len__(self):
        return len(data) - block_size

    def __getitem__(self, i):
        return data[i : i + block_size], data[i + 1 : i + 1 + block_size]
""",
    ),
    (
        """iter_num = 0
X, Y = get_batch()
while iter_num < max_iters:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    for micro_step in range(gradient_accumulation_steps):
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % 10 == 0:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}")
    iter_num += 1
""",
        """scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: get_lr(it) / learning_rate)
samples = max_iters * gradient_accumulation_steps * batch_size
sampler = RandomSampler(Windows(), replacement=True, num_samples=samples, generator=drawn)
for micro_step, (X, Y) in enumerate(DataLoader(Windows(), batch_size=batch_size, sampler=sampler)):
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        loss.backward()
        if (micro_step + 1) % gradient_accumulation_steps == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
""",
    ),
)
AUTOENCODER = (
    (
        "import lightning as L\n",
        "import lightning as L\nfrom agileml.torch import from_lightning\n",
    ),
    (
        """trainer = L.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(model, data.DataLoader(train, batch_size=10, shuffle=True), data.DataLoader(val))
""",
        """loaders = data.DataLoader(train, batch_size=10, shuffle=True), data.DataLoader(val)
trainer = from_lightning(model, *loaders, max_epochs=3)
""",
    ),
)
CLASSIFY = (
    ("import torch\n", "import torch\nfrom agileml.torch import from_transformers\n"),
    ("trainer.train()\n", "trainer = from_transformers(trainer)\n"),
)
CONVERTED = {
    "imagenet": ConvertedScript(),
    "language_model": ConvertedScript(changes=LANGUAGE),
    "nanogpt": ConvertedScript(changes=NANOGPT),
    "autoencoder": ConvertedScript("from_lightning", AUTOENCODER),
    "classify": ConvertedScript("from_transformers", CLASSIFY),
}


def loss_over_all(name: str, names: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> float:
    """The loss over the training set of a script, with its names, of a network in this state."""
    net = names["network"]() if name == "imagenet" else names["model"]
    net.load_state_dict(state)
    net.eval()
    with torch.no_grad():
        if name == "imagenet":
            pictures, kinds = names["images"](256, 1).tensors
            return float(functional.cross_entropy(net(pictures), kinds))
        if name == "language_model":
            return float(names["evaluate"](names["train_data"]))
        if name == "nanogpt":
            whole = names["data"][:1993]
            return float(net(whole[:-1].view(-1, 12), whole[1:].view(-1, 12))[1])
        if name == "autoencoder":
            pictures = names["pictures"].flatten(1)
            return float(functional.mse_loss(net.decoder(net.encoder(pictures)), pictures))
        rows = names["dataset"]
        batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
        return float(net(**batch).loss)


def original(name: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The names of a script after its own loop, and the state of its network."""
    with patch("sys.argv", [name]):
        names = runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    given = (
        torch.load("checkpoint.pth.tar")["state_dict"]
        if name == "imagenet"
        else names["model"].state_dict()
    )
    return names, {key: values.clone() for key, values in given.items()}


def converted(name: str) -> tuple[int, Any, int]:
    """The number of lines that change, the trainer of a script, and its steps."""
    script = CONVERTED[name]
    before = after = (SCRIPTS / f"{name}.py").read_text()
    for old, new in script.changes:
        assert after.count(old) == 1, old
        after = after.replace(old, new)
    blocks = SequenceMatcher(
        None, before.splitlines(), after.splitlines(), autojunk=False
    ).get_opcodes()
    lines = sum(max(old - was, new - now) for tag, was, old, now, new in blocks if tag != "equal")
    path = Path(f"{name}.py")
    path.write_text(after)
    if script.way != "init --trainer":
        trainer = runpy.run_path(str(path))["trainer"]
        return lines, trainer, trainer.clocks
    made = isolated(
        partial(compared_trainer, path, Path.cwd()), name, Path.cwd(), {"OMP_NUM_THREADS": "1"}
    )
    Path(f"{name}_trainer.py").write_text(made.text)
    return lines, runpy.run_path(f"{name}_trainer.py")["trainer"](), made.steps


def losses(name: str) -> tuple[int, int, float, float]:
    """The lines that change, the clocks, and the losses of the script and of its trainer."""
    quiet = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        redirect_stdout(quiet),
        redirect_stderr(quiet),
    ):
        names, state = original(name)
        expected = loss_over_all(name, names, state)
        lines, trainer, clocks = converted(name)
        given: Any = {
            "clocks": clocks,
            "chaos": FAULTS,
            "deterministic": True,
            "output": lambda _: None,
        }
        trained = agileml.train(trainer, "1+2", "sim", **given)
        assert trained.failures == 2
        return (
            lines,
            clocks,
            expected,
            loss_over_all(name, names, trainer.state_dict(trained.model)),
        )


def main(names: Sequence[str]) -> None:
    """Prints a row for each script."""
    heads = [
        "script",
        "converted by",
        "lines changed",
        "clocks",
        "loss of the script",
        "loss of the trainer",
    ]
    rows = [" | ".join(heads), " | ".join(["---"] * 2 + ["---:"] * 4)]
    for name in names or CONVERTED:
        lines, clocks, expected, found = losses(name)
        rows.append(
            f"{name} | {CONVERTED[name].way} | {lines} | {clocks} | {expected:.6f} | {found:.6f}"
        )
    sys.stdout.writelines(f"| {row} |\n" for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
