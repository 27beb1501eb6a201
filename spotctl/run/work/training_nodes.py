"""How the machines of a training become its nodes: on this computer through a folder, elsewhere
through a port.

Rented machines reach the controller through ssh, at a port of their own loopback interface, so the
launcher needs no address that they can reach. Nodes reach each other at their private addresses, or
at a port that a router forwards, over TLS in any case. A model that is split over its machines is
trained as a pipeline.
"""

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from agileml.job import TrainingJob
from agileml.join import node_name
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import (
    ModelSource,
    PreparedPipeline,
    file_source,
    prepare_pipeline,
)
from agileml.pipeline.run.training import PipelinePlan
from agileml.runtime.prepared_job import isolated
from spotctl.agent.files import Watched, replace_json
from spotctl.files.job.programs import Parallel
from spotctl.files.model_files import load_profiles
from spotctl.home.cloud import mapped_ports
from spotctl.planning.parallel import as_trained, profile_of, samples_of
from spotctl.run.environment import RunEnvironment

HOST = "127.0.0.1"

PORT = 7070
"""Port at which rented machines find the controller."""

NODE_PORT = 7071
"""Port of a node where others reach it through a router; elsewhere it is any free port."""

_PATIENCE = "3600"
"""Seconds that a node waits for a controller that copies data. Its machine's lease ends earlier if
there is none."""

_PORT_FILE = "port.json"

_SAVE_EVERY = 10
"""Updates between copies in the store; neighbors have later ones."""

_RATE = 0.003
"""The learning rate of a model without an optimizer."""


class TrainingNodes:
    """How the machines of a run become nodes. With a `port`, they are other computers, and the
    controller listens at this port of this one; without, they are processes of this computer and
    share the rendezvous `folder`."""

    def __init__(self, environment: RunEnvironment) -> None:
        self.folder = environment.rendezvous
        self.port: int | None = None
        if environment.rented and self.folder.is_dir():
            # The controller's port is the same in every process of the run unless another program
            # has taken it.
            file = self.folder / _PORT_FILE
            kept = Watched(file, lambda values: int(values["port"])).value() or 0
            self.port = free_port(kept) or free_port()
            replace_json(file, {"port": self.port})

    def command(self, python: str, cloud: str, *, patient: bool) -> list[str]:
        """The command that joins the training. A `patient` node waits long for a controller that
        still copies data.
        """
        joins = [python, "-m", "agileml.join"]
        if self.port is None:
            return [*joins, str(self.folder), "--name-in", "SPOTCTL_MACHINE"]

        mapped = mapped_ports(cloud)
        reached = ["--host", "auto"]
        if mapped is not None:
            host, port = mapped
            variables = host, port.format(NODE_PORT)
            reached = ["--reached-in", *variables, "--listen", f"0.0.0.0:{NODE_PORT}"]

        waits = ["--wait", _PATIENCE] if patient else []
        return [*joins, f"{HOST}:{PORT}", "--name-in", "SPOTCTL_MACHINE_ID", *reached, *waits]

    def name(self, machine: str) -> str:
        """The name of the node on a machine."""
        return machine if self.port is None else node_name(machine)


def free_port(wanted: int = 0) -> int:
    """The wanted port, or any free one for 0; 0 if the wanted port is taken."""
    with closing(socket.socket()) as probe:
        # Connections of a killed server that are still closing do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def prepared(
    job: TrainingJob, parallel: Parallel, most: int, workdir: Path, variables: Mapping[str, str]
) -> PreparedPipeline:
    """The job of a pipeline on at most `most` machines; a process in the job's folder loads the
    model.
    """
    parallel = as_trained(parallel)
    profile = profile_of(parallel, load_profiles(workdir / parallel.profile, None))
    batch = max(samples_of(parallel, profile) // profile.microbatch, 1)
    every = parallel.elastic.every
    nodes = parallel.elastic.nodes
    save_every = max(_SAVE_EVERY // every, 1) * every
    least_nodes, most_nodes = (nodes.least, min(most, nodes.most)) if nodes else (1, most)
    plan = PipelinePlan(
        batches=1,
        batch=batch,
        scheme=parallel.scheme,
        chunks=parallel.chunks or 1,
        recompute=bool(parallel.recompute),
        every=every,
        save_every=save_every,
        least_stages=parallel.stages or least_nodes,
        most_nodes=most_nodes,
        tensor=parallel.tensor or 1,
    )

    task = ModelSource(Optimizer(parallel.optimizer, _RATE), parallel.scheme, batch, plan.recompute)
    split = replace(job, source=file_source(job.source.target, profile.microbatch))
    seconds = [layer.forward_seconds + layer.backward_seconds for layer in profile.layers]
    return isolated(
        partial(prepare_pipeline, split, task, plan, seconds), job.source.target, workdir, variables
    )
