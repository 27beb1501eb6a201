"""A training on a Ray cluster, as a process of its own:
`python -m spotctl.run.start.ray_process RESULTS STATE`.

Ray changes the process that it runs in, and a job must not change the one that launches it. The job
is read from the folder RESULTS, and not from the arguments, which all users of a computer can see.
The iteration log and the model go there too, and to STATE what another process needs to continue
the training. SIGINT ends the training and its nodes.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from agileml.engines.attached import is_unfinished
from agileml.engines.chaos import QUIET
from agileml.engines.ray import RayEngine
from agileml.engines.ray.cluster import HeadLost
from agileml.errors import AgileMLError
from agileml.iteration_log import IterationLog, last_line_of
from agileml.job import GaveUp, TrainingJob
from agileml.runtime.prepared_job import RunnableJob
from pricing_data.errors import PricingDataError
from spotctl.agent.data.transfer import deliver
from spotctl.agent.errors import AgentError
from spotctl.files.job.programs import Training
from spotctl.files.job.reader import restored
from spotctl.files.model_files import check_nothing_lost, save_model
from spotctl.run.environment import LAUNCHER
from spotctl.run.start.ray_training import HEAD_LOST, JOB_FILE
from spotctl.run.work.training_nodes import prepared
from spotctl.run.work.training_workload import CHECKPOINT_FILE, LOG_FILE, MODEL_FILE, training_job


def main(folder: str, state: str) -> int:
    """Trains to the end; with exit code 1 it failed, as the last line printed says; with
    `HEAD_LOST` it can go on.
    """
    results = Path(folder)
    spec = restored(json.loads((results / JOB_FILE).read_text()), Path("job"))
    program = spec.program
    transient = spec.resources.machines.least
    assert isinstance(program, Training)
    sys.path.append(str(spec.workdir))

    try:
        job: TrainingJob | RunnableJob
        training = training_job(spec)
        if program.parallel is None:
            job = replace(training, transient=transient)
        else:
            # Each node of a pipeline is replaced.
            nodes = training.reliable + transient
            job = prepared(
                replace(training, reliable=nodes), program.parallel, nodes, spec.workdir, {}
            )
        with IterationLog(results / LOG_FILE, resumes=is_unfinished(Path(state))) as log:
            trained = RayEngine(program.address, state=Path(state)).run(job, QUIET, log.write)
            check_nothing_lost(trained.counters)
            save_model(trained.model, results / MODEL_FILE)
            log.put(last_line_of(trained))
        if "://" in (published := spec.outputs.get("model", "")):
            deliver(results, published, LAUNCHER)
    except GaveUp as error:
        save_model(error.trained.model, results / CHECKPOINT_FILE)
        sys.stderr.write(
            f"{error}; the model after clock {error.trained.clocks} is "
            f"{results / CHECKPOINT_FILE}\n"
        )
        return 1
    except HeadLost as error:
        sys.stderr.write(f"{error}\n")
        return HEAD_LOST
    except (AgentError, AgileMLError, PricingDataError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1

    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
