"""Keys that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import loads, restored, written
from spotctl.home.errors import BadRequest
from spotctl.run.work.training_workload import training_job
from tests.spotctl.files.job.test_spec_consumers import COMMAND, TRAINING


def test_a_container_that_a_job_cannot_have_is_refused() -> None:
    with pytest.raises(
        BadRequest, match=r"image\.container: is for commands and for trainings on clouds"
    ):
        loads(f"{TRAINING}image: {{container: app}}\n", Path("job.yaml"))
    with pytest.raises(BadRequest, match=r"image\.login: A is not one of secrets"):
        loads(f"{COMMAND}image: {{container: app, login: A}}\n", Path("job.yaml"))
    with pytest.raises(
        BadRequest,
        match=r"checkpoint\.signed_with: unknown key: checkpoints have no signatures; remove it",
    ):
        loads(COMMAND.replace("{path: ", "{signed_with: A, path: "), Path("job.yaml"))
    with pytest.raises(BadRequest, match=r"image\.login: is for the registry of a container"):
        loads(f"{COMMAND}secrets: [A]\nimage: {{login: A}}\n", Path("job.yaml"))


@pytest.mark.parametrize("line", ["image: {disk_gib: 100}", "identity: {aws: trainer}"])
def test_processes_of_this_computer_have_no_image_and_no_identity(line: str) -> None:
    with pytest.raises(BadRequest, match="not to the local market; remove it"):
        loads(f"{TRAINING}{line}\n", Path("job.yaml"))


def test_an_identity_is_for_a_cloud_of_the_job() -> None:
    text = TRAINING.replace("clouds: [local]", "clouds: [aws]")
    with pytest.raises(
        BadRequest, match=r"job.yaml:8: identity.gcp: is not one of clouds: \[aws\]; remove it"
    ):
        loads(f"{text}identity: {{gcp: trainer}}\n", Path("job.yaml"))


def test_a_frameworks_trainer_says_when_it_ends() -> None:
    text = TRAINING.replace("app: mf", "trainer: {lightning: json:loads}").replace(
        "stop: {clocks: 2000}\n", ""
    )
    assert "stop" not in text
    job = loads(text, Path("job.yaml"))
    assert training_job(job).stopping.ending(90).clocks == 90
    assert training_job(restored(written(job), Path("job.yaml"))) == training_job(job)
    for line, said in {
        "app: json:dumps": r"app: is made by trainer; remove one of them",
        "parallel: auto": r"trainer: is not for parallel, which splits a model",
    }.items():
        with pytest.raises(BadRequest, match=said):
            loads(f"{text}{line}\n", Path("job.yaml"))
    with pytest.raises(
        BadRequest, match=r"trainer\.keras: .*expected one of lightning, transformers"
    ):
        loads(text.replace("lightning", "keras"), Path("job.yaml"))
    with pytest.raises(BadRequest, match=r"trainer\.lightning: .*there is no module nowhere"):
        loads(text.replace("json", "nowhere"), Path("job.yaml"))
