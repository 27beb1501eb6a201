"""Scripts as people write them, with all layouts of checkpoints, and liars: what init writes, and
what a trial sees.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from spotctl.files.script.reading import applied, read_script
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.layout_scripts_run import SCRIPTS, bring

pytestmark = pytest.mark.usefixtures("few_windows")

FOLDER = '"$SPOTCTL_CHECKPOINT_DIR"'
CHANGES = {"init_from": 1, "init_from_for": 1, "init_from_while": 1, "no_save": 2, "train_gpt": 1}
"""The lines to change; the others need none."""

UNREAD = ("titan_train", "yaml_config")
"""Only a trial shows where these save."""

ARGUMENTS = {
    "epoch_folders": f"--output_dir {FOLDER} $(ls -d {FOLDER}/epoch_*/training.bin 2>/dev/null | sort -V |"
    " sed -n '$ {s|/training.bin$||; s|^|--resume_from_checkpoint |; p}')",
    "latest_word": f"--output_dir {FOLDER} $(ls -d {FOLDER}/checkpoint-*/state.pt >/dev/null 2>&1 &&"
    " echo --resume_from_checkpoint latest)",
    "ckpt_latest": f"--logdir {FOLDER} $(ls -d {FOLDER}/model_*.pt >/dev/null 2>&1 && echo --ckpt latest)",
    "click_flag": f"--checkpoint-file {FOLDER}/state.ckpt"
    f" $(ls -d {FOLDER}/state.ckpt >/dev/null 2>&1 && echo --resume)",
    "overrides": f"out={FOLDER} $(ls -d {FOLDER}/last.pt 2>/dev/null | sort -V | sed -n '$ {{s|^|resume=|; p}}')",
    "typer_flag": f"--workdir {FOLDER} $(ls -d {FOLDER}/newest.pt >/dev/null 2>&1 && echo --resume)",
    "resume_switch": f"--save-dir {FOLDER} $(ls -d {FOLDER}/last.pth >/dev/null 2>&1 && echo --resume)",
    "run_classification": f"--output_dir {FOLDER} $(ls -d {FOLDER}/checkpoint-*/pytorch_model.bin 2>/dev/null |"
    " sort -V | sed -n '$ {s|/pytorch_model.bin$||; s|^|--resume_from_checkpoint |; p}')",
    "run_clm_no_trainer": f"--output_dir {FOLDER} $(ls -d {FOLDER}/step_*/random_states_0.pkl"
    " 2>/dev/null | sort -V | sed -n '$ {s|/random_states_0.pkl$||; s|^|--resume_from_checkpoint |; p}')",
    "skips_batches": f"--checkpoint {FOLDER}/mid.pt",
    "trainer_class": f"--out {FOLDER}",
}
VARIABLES = {
    "ddpm_toy": "$(ls -d runs/*/ckpt_*.pt >/dev/null 2>&1 && echo RESUME=latest)",
    "env_file": f"CKPT={FOLDER}/model.joblib",
    "env_path": f"OUT_DIR={FOLDER} $(ls -d {FOLDER}/step-*.pt 2>/dev/null | sort -V |"
    " sed -n '$ {s|^|RESUME_FROM=|; p}')",
    "env_switch": "$(ls -d out/last.pt >/dev/null 2>&1 && echo RESUME=1)",
}
LIARS = {
    "liar_database": r"continued at part \d+, but|(repeated|went back to) part \d+",
    "liar_env_switch": r"began again at epoch 0, with the weights that it had saved",
    "liar_lists": r"continued at generation \d+, but",
    "liar_savez": r"continued at step \d+, but",
    "liar_ignores": r"began again at epoch 1",
    "liar_says": r"began again at epoch 1, with the weights that it had saved",
    "liar_old_file": r"(went back to step|repeated step) \d+",
    "liar_counts_only": r"continued at global_step \d+, but with weights that it had not saved",
    "liar_init_from": r"began again at iter_num 0",
    "liar_main_shapes": r"began again at epoch 0, i 0",
    "liar_np_mlp": r"continued at it \d+, but it read state_\d+.npz, although state_\d+.npz is newer",
    "liar_pretrain_ds": r"continued at global_steps \d+, but with weights that it had not saved",
}
HONEST = sorted({path.stem for path in SCRIPTS.glob("*.py")} - LIARS.keys())


@pytest.mark.parametrize("name", HONEST)
def test_lines_and_arguments_make_each_layout_resume_as_far_as_it_is_read(
    name: str, folder: Path
) -> None:
    path = bring(name, folder)
    changes = read_script(path, folder).changes
    assert len(changes) == CHANGES.get(name, 0), changes
    path.write_text(applied(path.read_text(), changes))
    again = spotctl("init", f"{name}.py", "--json", "--force").json["script"]
    assert (again["resumes"], again["changes"]) == (name not in UNREAD, [])
    run = load(Path("job.yaml")).program.run  # type: ignore[union-attr]
    env = f"env {VARIABLES[name]} " if name in VARIABLES else ""
    assert (
        re.split(" && (cp|{) ", run)[0].rstrip()
        == f"{env}python {name}.py {ARGUMENTS.get(name, '')}".rstrip()
    )
