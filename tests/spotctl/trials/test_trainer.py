"""`spotctl init train.py --trainer`: a training that is the script's, or a refusal that names its
lines.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch

from agileml import reference
from agileml.errors import AgileMLError
from agileml.runtime.prepared_job import isolated
from spotctl.trials.trainer import ComparedTrainer, compared_trainer
from tests.spotctl.files.converted_scripts import CONVERTED, losses

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]

SCRIPTS = Path(__file__).parents[1] / "files" / "trainer_scripts"


def copied(name: str, change: tuple[str, str] = ("", "")) -> Path:
    """The script in the working directory, with one line changed."""
    shutil.copy(SCRIPTS / "characters.py", ".")
    text = (SCRIPTS / f"{name}.py").read_text()
    assert change[0] in text
    path = Path(f"{name}.py")
    path.write_text(text.replace(*change) if change[0] else text)
    return path


def compared(path: Path) -> ComparedTrainer:
    return isolated(
        partial(compared_trainer, path, Path.cwd()), str(path), Path.cwd(), {"OMP_NUM_THREADS": "1"}
    )


CARRIED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "features": (
        640,
        (
            "batch_size=16, shuffle=False, num_workers=2, drop_last=True",
            "criterion = nn.CrossEntropyLoss(label_smoothing=0.1)",
            "loss = criterion(outputs, targets) + 0.001 * sum((p.abs().sum() for p in "
            "model.parameters()))",
            "StepLR(optimizer, step_size=100, gamma=0.1)",
            "clip_norm=1.0",
            "batch_size=16",
        ),
    ),
    "nanogpt": (
        40,
        (
            "with torch.autocast('cpu', torch.bfloat16):",
            "nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())",
            "CosineAnnealingLR(opt, 1000)",
            "betas=(0.9, 0.95)",
            "clip_norm=1.0",
            "batch_size=32",
        ),
    ),
    "digits": (
        14 * 13,
        ("return StepEvery(scheduler, 13)", "F.nll_loss(output, target)", "batch_size=16"),
    ),
    "accumulated": (18, ("8 * 4", "batch_size=32", "clip_norm=0.5", "return loss * 4")),
    "step_limited": (
        75,
        ("collate_fn=collate", "SequentialLR(optimizer, [warm, cosine], [WARM])", "clip_norm=1.0"),
    ),
    "residual": (20, ("parts=1,", "nesterov=True")),
    "contrastive": (15, ("parts=1,", "scores = za @ zb.T / temperature")),
    "variational": (
        9,
        ("data, = batch", "loss = loss_function(recon, data, mu, logvar)", "drop_last=True"),
    ),
}
"""By script: its steps, and what its trainer has."""


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CARRIED)
def test_a_trainer_takes_the_steps_of_its_script(name: str) -> None:
    steps, lines = CARRIED[name]
    trainer = compared(copied(name))
    assert [line for line in lines if line not in trainer.text] == []
    assert (trainer.steps, trainer.clocks) == (steps, 3)
    assert trainer.difference < (0.02 if name == "nanogpt" else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("uneven", ("", ""), "line 7: a step takes 4 batches of 8 samples, and 90 samples are no multiple"),
        (
            "features",
            ("    for inputs", "    train_set.tensors[1].zero_()\n    for inputs"),
            "line 14: not known to leave|dataset.. makes other samples",
        ),
        ("digits", ("args = parser.parse_args()", "args = parser.parse_args()\n    raise OSError(3)"), "OSError: 3"),
        ("digits", ("range(1, args.epochs + 1)", "range(1, 1)"), "did not reach its loop"),
    ],
)  # fmt: skip
def test_what_running_the_script_shows_is_refused(
    name: str, change: tuple[str, str], problem: str
) -> None:
    with pytest.raises(AgileMLError, match=problem):
        compared(copied(name, change))


INITIALIZED = """for layer in model.modules():
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=3.0)
        nn.init.constant_(layer.bias, 0.25)
last = model[2]
last.bias.data.fill_(-1.0)
for name, p in model.named_parameters():
    print(name, p.shape)
for p in model[0].parameters():
    p.requires_grad = False
"""


@pytest.mark.slow
def test_first_weights_and_frozen_layers_are_those_of_the_script() -> None:
    path = copied("features", ("criterion =", f"{INITIALIZED}criterion ="))
    text = compared(path).text
    for line in (
        "nn.init.normal_(layer.weight, std=3.0)",
        "last.bias.data.fill_(-1.0)",
        "p.requires_grad = False",
    ):
        assert line in text
    assert "print(" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        "shuffle=True, generator=torch.Generator().manual_seed(4)",
        "sampler=torch.utils.data.WeightedRandomSampler([1.0] * 256, 256, "
        "generator=torch.Generator().manual_seed(4))",
    ],
)
def test_the_order_of_a_generator_or_sampler_is_carried(order: str) -> None:
    trainer = compared(copied("features", ("shuffle=False", order)))
    assert 'order="loader"' in trainer.text
    assert not [remark for remark in trainer.remarks if "order" in remark]
    assert trainer.difference < 1e-4


SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
{first}
torch.manual_seed(3)
x = torch.randn(96, 12, generator=torch.Generator().manual_seed(11))
y = (x[:, :3].exp()).argmax(1)
model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
data = TensorDataset(x, y)
sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=4)
loader = DataLoader(data, batch_size=16, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
{before}
for epoch in range(3):
    {each}
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy({network}(inputs), targets).backward()
        optimizer.step()
    {then}
{last}
torch.save(model.state_dict(), "last.pt")
"""
USUAL = {"first": "", "before": "", "each": "", "then": "", "last": "", "network": "model"}
VALIDATED = """model.eval()
    right = 0
    with torch.no_grad():
        for inputs, targets in DataLoader(data, batch_size=32):
            right += (model(inputs).argmax(1) == targets).sum().item()
    if right / len(data) > 0.5:
        torch.save(model.state_dict(), "best.pt")"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        {"each": "sampler.set_epoch(epoch)"},
        {"each": "sampler.set_epoch(epoch + 7)"},
        {"then": "loader.sampler.set_epoch(epoch + 1)"},
        {"before": "sampler.set_epoch(7)"},
        {},
        {"first": "torch.set_default_dtype(torch.float64)"},
        {"before": "fast = torch.compile(model, backend='eager')", "network": "fast"},
        {"each": "model.train()", "then": VALIDATED},
    ],
)
def test_a_trainer_ends_with_the_weights_of_its_script(lines: dict[str, str]) -> None:
    """A sampler that gets other epochs, or none, and what holds for the whole process:
    three clocks were the same, and the whole training was another one, by up to its whole way."""
    path = Path("small.py")
    path.write_text(SCRIPT.format(**(USUAL | lines)))
    trainer = compared(path)
    assert trainer.remarks == ()

    Path("small_trainer.py").write_text(trainer.text)
    subprocess.run([sys.executable, str(path)], check=True)
    code = (
        "import torch, small_trainer; from agileml import reference; made = small_trainer.trainer()\n"
        f"ended = made.state_dict(reference.run(made, {trainer.steps}, seed=7))\n"
        "torch.save(ended, 'ours.pt')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    ours, theirs = torch.load("ours.pt"), torch.load("last.pt")
    for name, values in theirs.items():
        assert torch.allclose(ours[name].to(values.dtype), values, rtol=1e-4, atol=1e-5), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            {"last": "for each in model.parameters():\n    each.data.mul_(0.5)"},
            "line 22: changes model after the loop",
        ),
        ({"each": "sampler.set_epoch(2 * epoch)"}, "line 17: .* gets the epochs 0, 2, 4"),
    ],
)
def test_what_a_trainer_would_do_otherwise_is_refused(lines: dict[str, str], problem: str) -> None:
    path = Path("small.py")
    path.write_text(SCRIPT.format(**(USUAL | lines)))
    with pytest.raises(AgileMLError, match=problem):
        compared(path)


@pytest.mark.slow
def test_lines_that_are_not_carried_are_listed() -> None:
    path = Path("small.py")
    counts = "right = 0\nfor inputs, _ in loader:\n    right += model(inputs).sum().item()"
    lines = {
        "first": "import faulthandler; faulthandler.enable()",
        "last": f"{counts}\nmodel.load_state_dict(torch.load('last.pt'))",
    }
    path.write_text(SCRIPT.format(**(USUAL | lines)))
    assert compared(path).remarks == (
        "line 5 is not carried: faulthandler.enable()",
        "line 23 is not carried: for inputs, _ in loader:",
        "line 25 is not carried: model.load_state_dict(torch.load('last.pt'))",
    )


@pytest.mark.slow
def test_a_whole_training_ends_with_the_weights_of_the_script() -> None:
    """From seeded weights, in the order of the samples, and without dropout: nothing is left to
    chance.
    """
    change = (
        "DataLoader(dataset1, shuffle=True, **train_kwargs)",
        "DataLoader(dataset1, **train_kwargs)",
    )
    path = copied("digits", change)
    path.write_text(
        path.read_text().replace("Dropout(0.25)", "Dropout(0.0)").replace("default=14", "default=2")
    )
    trainer = compared(path)
    Path("digits_trainer.py").write_text(trainer.text)
    subprocess.run(
        [sys.executable, str(path), "--save-model"], check=True, stdout=subprocess.DEVNULL
    )
    expected = torch.load("digits.pt")
    made = runpy.run_path("digits_trainer.py")["trainer"]()
    found = made.state_dict(reference.run(made, trainer.steps, seed=7))
    assert trainer.steps == 26
    for name, values in expected.items():
        assert torch.allclose(found[name], values, rtol=1e-4, atol=1e-5), name


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", CONVERTED)
def test_a_published_training_and_its_trainer_have_the_same_loss(name: str) -> None:
    framework = CONVERTED[name].way.removeprefix("from_")
    if framework in {"lightning", "transformers"}:
        if os.environ.get("SPOTCTL_TEST_TRAINERS") != "all":
            pytest.skip("make trainers runs it")
        pytest.importorskip(framework)
    _, _, expected, found = losses(name)
    assert found == pytest.approx(expected, rel=1e-5)
