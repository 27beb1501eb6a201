"""A training whose model is split over its machines: a pipeline, from the job file and the profile of the model."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agileml.job import TrainingJob
from agileml.pipeline.model.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import PreparedPipeline, prepare_pipeline
from agileml.pipeline.run.model_source import ModelSource, file_source
from agileml.pipeline.run.training import PipelinePlan
from agileml.runtime.job_shape import isolated
from spotctl.files.job.programs import Parallel
from spotctl.files.parallel_files import load_profiles
from spotctl.planning.parallel import as_trained, profile_of, samples_of

_SAVE_EVERY = 10
"""Updates between copies in the store; neighbors have later ones."""

_RATE = 0.003
"""The learning rate of a model without an optimizer."""


def prepared(
    job: TrainingJob, parallel: Parallel, most: int, workdir: Path, variables: Mapping[str, str]
) -> PreparedPipeline:
    """The job of a pipeline on at most `most` machines; a process in the job's folder loads the model."""
    parallel = as_trained(parallel)
    profile = profile_of(parallel, load_profiles(workdir / parallel.profile, None, crossing=1))
    batch = max(samples_of(parallel, profile) // profile.microbatch, 1)
    every, nodes = parallel.elastic.every, parallel.elastic.nodes
    plan = PipelinePlan(
        batches=1,
        batch=batch,
        scheme=parallel.scheme,
        chunks=parallel.chunks or 1,
        recompute=bool(parallel.recompute),
        every=every,
        save_every=max(_SAVE_EVERY // every, 1) * every,
        least_stages=parallel.stages or (nodes.least if nodes else 1),
        most_nodes=min(most, nodes.most) if nodes else most,
        tensor=parallel.tensor or 1,
    )
    task = ModelSource(Optimizer(parallel.optimizer, _RATE), parallel.scheme, batch, plan.recompute)
    split = replace(job, source=file_source(job.source.target, profile.microbatch))
    seconds = [layer.forward_seconds + layer.backward_seconds for layer in profile.layers]
    return isolated(partial(prepare_pipeline, split, task, plan, seconds), job.source.target, workdir, variables)
