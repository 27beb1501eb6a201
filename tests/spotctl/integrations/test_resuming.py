"""What the hooks for training loops share: published checkpoints, the loader that resumes, and
SIGTERM.
"""

from __future__ import annotations

from pathlib import Path

import torch

from spotctl.agent.data.transfer import listing
from spotctl.integrations.loops import PublishedCheckpoints, link_tree


def test_a_checkpoint_is_copied_only_once_it_is_whole(tmp_path: Path) -> None:
    published = PublishedCheckpoints(tmp_path / "kept")
    for step in (9, 10):
        hidden = published.hidden(f"checkpoint-{step}")
        hidden.mkdir()
        torch.save({"step": step}, hidden / "model.pt")
        assert all(f"-{step}/" not in name for name, *_ in listing(tmp_path / "kept"))
        published.publish(f"checkpoint-{step}", keep=("checkpoint-9",))
    assert [path.name for path in published.all()] == ["checkpoint-9", "checkpoint-10"]
    published.hidden("checkpoint-11").mkdir()
    published.publish("checkpoint-11")
    assert [path.name for path in published.all()] == ["checkpoint-11"]


def test_the_hidden_name_is_one_that_torch_saves_to(tmp_path: Path) -> None:
    published = PublishedCheckpoints(tmp_path)
    torch.save({"step": 4}, published.hidden("step-4.ckpt"))
    published.publish("step-4.ckpt")
    assert torch.load(published.all()[0]) == {"step": 4}


def test_a_linked_copy_stays_when_the_original_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "part").mkdir(parents=True)
    (tmp_path / "a" / "part" / "weights").write_text("1 2")
    link_tree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / "part" / "weights").unlink()
    assert (tmp_path / "b" / "part" / "weights").read_text() == "1 2"
