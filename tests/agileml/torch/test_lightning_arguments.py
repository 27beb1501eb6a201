"""Every argument of Lightning's Trainer and every hook of its modules, each with another value than
the usual one.

What is accepted must give the weights and the log of `fit`; the rest is refused by its name. The
lists are those of the installed Lightning, so that a new argument or hook is tested, too.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("lightning")

import lightning.pytorch as pl
from lightning.pytorch.callbacks import EarlyStopping, ModelSummary
from lightning.pytorch.plugins import MixedPrecision

from agileml.errors import AgileMLError
from agileml.torch import from_lightning
from agileml.torch.lightning_arguments import hooks_of
from tests.agileml.torch.lightning_models import Classifier, Data
from tests.agileml.torch.test_lightning import QUIET, compare, seeded

OTHER: dict[str, list[Any]] = {
    "accelerator": ["cpu", "tpu"],
    "accumulate_grad_batches": [3],
    "barebones": [True],
    "benchmark": [True],
    "callbacks": [[EarlyStopping("val_loss")], ModelSummary()],
    "check_val_every_n_epoch": [2, None],
    "default_root_dir": ["elsewhere"],
    "detect_anomaly": [True],
    "deterministic": [True],
    "devices": [1, 2],
    "enable_autolog_hparams": [False],
    "enable_checkpointing": [True],
    "enable_model_summary": [True],
    "enable_progress_bar": [True],
    "fast_dev_run": [2],
    "gradient_clip_algorithm": ["value"],
    "gradient_clip_val": [0.05],
    "inference_mode": [False],
    "limit_predict_batches": [1],
    "limit_test_batches": [1],
    "limit_train_batches": [5, 0.5],
    "limit_val_batches": [2, 0.5, 0],
    "log_every_n_steps": [3, 0],
    "logger": [False],
    "max_epochs": [3, -1],
    "max_steps": [5],
    "max_time": ["00:00:10:00"],
    "min_epochs": [2],
    "min_steps": [2],
    "model_registry": ["name"],
    "num_nodes": [2],
    "num_sanity_val_steps": [0, -1],
    "overfit_batches": [2],
    "plugins": [MixedPrecision("bf16-mixed", "cpu")],
    "precision": ["64-true", "bf16-mixed", "16-mixed", "bf16-true"],
    "profiler": ["simple"],
    "reload_dataloaders_every_n_epochs": [1],
    "strategy": ["ddp"],
    "sync_batchnorm": [True],
    "use_distributed_sampler": [False],
    "val_check_interval": [4, 0.5, "00:00:10:00"],
}
"""For each argument, values that are not the usual one."""

USUAL = {"max_epochs": 2, "log_every_n_steps": 1}
TOLERANCE = {"bf16-mixed": 0.05}
"""Parts of a batch are rounded to 16 bits otherwise than the whole."""


def refused(name: str, *given: Any, **arguments: Any) -> bool:
    """Whether the trainer is refused, which names what is not carried in one line."""
    try:
        from_lightning(*given, **arguments)
    except AgileMLError as error:
        text = str(error)
    else:
        return False
    assert name in text
    assert "\n" not in text
    return True


PLAIN_ARGUMENTS = [
    name for name in inspect.signature(pl.Trainer.__init__).parameters if name != "self"
]
CASES = [(name, value) for name in PLAIN_ARGUMENTS for value in OTHER.get(name, [object()])]


@pytest.mark.parametrize(
    ("name", "value"), CASES, ids=[f"{name}={value}"[:40] for name, value in CASES]
)
def test_an_argument_gives_what_fit_gives_or_is_refused(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {**USUAL, name: value}
    if name == "gradient_clip_algorithm":
        arguments["gradient_clip_val"] = 0.05
    if name == "check_val_every_n_epoch" and value is None:
        arguments["val_check_interval"] = 5
    if refused(name, *seeded(), **arguments):
        return
    compare(seeded, arguments, tmp_path, within=TOLERANCE.get(str(value), 1e-5))


def test_an_argument_of_a_later_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def later(self: Any, *, warp: int = 1, max_epochs: int | None = None) -> None:
        """A Trainer of tomorrow."""

    monkeypatch.setattr(pl.Trainer, "__init__", later)
    with pytest.raises(
        AgileMLError, match=r"warp of lightning.Trainer .* is not known to this version"
    ):
        from_lightning(*seeded(), warp=2)


def hooked(hook: str, parent: type[Any] = Classifier) -> type[Any]:
    """A module or data module whose hook does what it does, and more where that has a meaning."""

    def replaced(self: Any, *given: Any, **named: Any) -> Any:
        if hook in {"on_after_batch_transfer", "on_before_batch_transfer"}:
            return [given[0][0] * 1.5, given[0][1]]
        if hook == "transfer_batch_to_device":
            return [given[0][0].to(given[1]) + 0.25, given[0][1].to(given[1])]
        if hook in {"setup", "prepare_data", "configure_model"} and parent is Classifier:
            self.net[0].bias.data.fill_(0.125)
        return getattr(super(made, self), hook)(*given, **named)

    made = type(f"With_{hook}", (parent,), {hook: replaced})
    return made


OWN_LOADERS = {"train_dataloader", "val_dataloader"}


@pytest.mark.parametrize("hook", hooks_of(pl.LightningModule))
def test_a_hook_is_called_as_in_fit_or_refused(hook: str, tmp_path: Path) -> None:
    def made() -> tuple[Any, ...]:
        pl.seed_everything(7, verbose=False)
        if hook not in OWN_LOADERS:
            return hooked(hook)(), Data()
        data = Data()
        data.setup("fit")
        loaders = {
            "train_dataloader": data.train_dataloader(),
            "val_dataloader": data.val_dataloader(),
        }
        return (
            type(
                "Loads",
                (Classifier,),
                {name: lambda _, name=name: loaders[name] for name in OWN_LOADERS},
            )(),
        )

    if not refused(hook, *made(), **USUAL):
        compare(made, USUAL, tmp_path)


@pytest.mark.parametrize("hook", hooks_of(pl.LightningDataModule))
def test_a_hook_of_the_data_is_called_as_in_fit_or_refused(hook: str, tmp_path: Path) -> None:
    def made() -> tuple[Any, ...]:
        return seeded(Classifier, hooked(hook, Data)())

    if not refused(hook, *made(), **USUAL):
        compare(made, USUAL, tmp_path)


@pytest.mark.parametrize("hook", hooks_of(pl.Callback))
def test_a_hook_of_a_callback_is_not_for_fit_or_refused(hook: str) -> None:
    called: list[str] = []
    own = type("Own", (pl.Callback,), {hook: lambda *_, **__: called.append(hook)})
    given: dict[str, Any] = USUAL | {"callbacks": [own()]}
    if refused(f"Own.{hook}", *seeded(), **given):
        return
    assert from_lightning(*seeded(), **given).ignored == ["callbacks"]
    try:
        pl.Trainer(**QUIET, **given, logger=False, accelerator="cpu").fit(*seeded())
    except TypeError:
        # What a callback has to return.
        assert called == [hook] == ["state_dict"]
    assert {*called} <= {"state_dict", "teardown"}
