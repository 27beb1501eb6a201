"""`init TASK`."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.tasks.test_draft import DSTACK


class TestInit:
    """`spotctl init task.yaml`."""

    def test_it_lists_what_was_left_out_with_its_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path(".dstack.yml").write_text(DSTACK)
        ended = spotctl("init", ".dstack.yml")
        approved(ended)
        assert "backends: lambda is no cloud that spotctl rents from" in ended.out
        spec = load(Path("job.yaml"))
        assert (spec.name, spec.workdir) == ("train-distrib", tmp_path)
        answer = spotctl("init", ".dstack.yml", "--force", "--json").json
        assert (answer["file"], answer["tool"], len(answer["left_out"])) == (
            "job.yaml",
            "dstack",
            5,
        )
        assert answer["left_out"][0]["line"] == 4

    @pytest.mark.parametrize(
        "text",
        [
            "type: service\ncommands: [serve]\n",
            "type: task\n",
            "resources: {accelerators: 'A100:many'}\nrun: python train.py\n",
            "resources: {infra: aws//us-east-1a}\nrun: python train.py\n",
            "service: {readiness_probe: /}\nrun: serve\n",
            "resources: {cpus: 8+}\nsetup: pip install torch\n",
            "resources: {infra: vast, accelerators: 'H100:8'}\nnum_nodes: 2\nrun: python "
            "train.py\n",
            "resources:\n  accelerators: tpu-v5e-8\nrun: python train.py\n",
            "type: task\ncommands: [python train.py]\nresources: {gpu: 'google:v5litepod-8'}\n",
            "name: group\nexecution: parallel\n---\nrun: serve\n---\nrun: ask\n",
        ],
    )
    def test_what_is_no_task_is_refused(
        self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("task.yaml").write_text(text)
        approved(spotctl("init", "task.yaml"))
        assert not Path("job.yaml").exists()

    def test_a_pipeline_becomes_numbered_jobs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("pipe.yaml").write_text(
            "name: pipe\n---\nname: data\nresources: {cpus: 8+, use_spot: true}\nrun: python data.py\n"
            "---\nname: train\nresources: {accelerators: T4:1, use_spot: true}\nrun: python train.py\n"
        )
        approved(spotctl("init", "pipe.yaml"))
        names = [load(path).name for path in sorted(tmp_path.glob("job-*.yaml"))]
        assert names == ["data", "train"]
        answer = spotctl("init", "pipe.yaml", "--force", "--json").json
        assert answer["files"] == ["job-1-data.yaml", "job-2-train.yaml"]

    def test_a_pipeline_with_a_bad_task_writes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("pipe.yaml").write_text("run: python data.py\n---\nresources: {cpus: none}\nrun: x\n")
        ended = spotctl("init", "pipe.yaml")
        assert (ended.code, "pipe.yaml:3" in ended.err) == (2, True)
        assert not [*tmp_path.glob("job*")]
