"""How a job's model is split over the devices of each machine type, and how fast that is expected
to be. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf, log

from agileml.errors import BadInput
from agileml.pipeline.plan.parallel_plan import ParallelPlan, SplitRequest, Topology
from agileml.pipeline.plan.planner import plan, summary
from agileml.pipeline.profile.model_profile import CostRules, ModelProfile
from pricing_data.catalog import InstanceType
from spotctl.files.job.conversions import AUTO
from spotctl.files.job.programs import Parallel
from spotctl.files.job.values import ACCELERATOR_SPEEDS, CPU
from spotctl.home.errors import BadRequest
from spotctl.planning.values import TypeSpeed

_MICROBATCHES = 8
"""Microbatches of an update, if the job does not set its batch."""

_WITHIN_SERVER, _BETWEEN_SERVERS = 10e9, 10e9 / 8
"""Bytes per second between devices of a server, and between servers whose network the catalog does
not describe."""

_CHUNKS = 2
"""Chunks per machine of a training that is interleaved, if the job does not set them."""

_MAX_DEVICES = 16
"""Devices of one machine that are used; more cores do not speed up models of this size."""

_HELD = 0.5
"""The share of a machine's memory for the layers of its nodes; the rest is for copies of their
neighbors' layers."""

_COPIES = 8
"""More weights than any plan keeps of a layer: versions, gradients, and the optimizer's state."""

_NORMAL_P90 = 1.2816
_GIB = 2**30


def split_speeds(
    parallel: Parallel,
    profiles: Sequence[ModelProfile],
    nodes: int,
    types: Iterable[InstanceType],
    most_devices: int = _MAX_DEVICES,
    market_speed: float = 1.0,
) -> dict[str, TypeSpeed]:
    """Updates per hour of one of `nodes` machines, by type; types that the profile does not cover
    are left out.

    At most `most_devices` of a machine are used. A replayed market passes `market_speed` seconds in
    one of computing. Raises BadRequest if the model fits no type.
    """
    profile = profile_of(parallel, profiles)
    batch = samples_of(parallel, profile)
    speeds: dict[str, TypeSpeed] = {}
    too_small: list[str] = []
    plans: dict[tuple[str, Topology, float], TypeSpeed | BadInput] = {}

    # More than a device needs that has all layers and all microbatches of an update.
    layer_bytes = (layer.stash_bytes + layer.output_bytes for layer in profile.layers)
    passing = profile.input_bytes + sum(layer_bytes)
    layer_weights = (layer.weight_bytes for layer in profile.layers)
    weights = _COPIES * sum(layer_weights)
    whole_model = weights + batch / profile.microbatch * passing

    elastic = parallel.elastic
    for machine in types:
        device = machine.accelerator or CPU
        are_accelerators = CPU not in (parallel.device, device)
        if device != parallel.device and not (are_accelerators and device in ACCELERATOR_SPEEDS):
            continue
        # Two vCPUs share a core.
        own_devices = machine.accelerators or max(machine.vcpus // 2, 1)
        devices = min(own_devices, most_devices)
        if elastic.nodes is not None:
            whole_devices = elastic.nodes.most // nodes
            devices = min(devices, max(whole_devices, 1))
        between = machine.network_gbps * 1e9 / 8 if machine.network_gbps else _BETWEEN_SERVERS
        links = (_WITHIN_SERVER, min(between, _WITHIN_SERVER))
        topology = Topology((devices, nodes), links)
        if elastic.nodes is not None and topology.devices < elastic.nodes.least:
            too_small.append(machine.name)
            continue
        # Bytes for the layers of one device.
        memory_bytes = machine.memory_gib * _GIB
        memory = memory_bytes * _HELD / topology.counts[0]
        if machine.accelerator is not None:
            memory = ACCELERATOR_SPEEDS[machine.accelerator].memory_gib * _GIB
        # Types on whose devices the whole model fits share a plan.
        shape = device, topology, memory if memory < whole_model else inf
        if shape not in plans:
            plans[shape] = _speed(parallel, profile, batch, shape, market_speed)
        result = plans[shape]
        if isinstance(result, TypeSpeed):
            speeds[machine.name] = result

    if not speeds:
        refusals = (result for result in plans.values() if isinstance(result, BadInput))
        refused = next(refusals, None)
        none = (
            f"no machine type that the job may use has the device of the profile, {parallel.device}"
        )
        cure = "widen types, or set parallel.device"
        if too_small:
            none = (
                f"elastic.nodes is {parallel.elastic.nodes}, and {', '.join(too_small)} have fewer "
                "devices"
            )
            cure = "widen types or nodes"
        raise BadRequest(f"parallel: {refused or f'{none}; {cure}'}")

    return speeds


def _planned(
    parallel: Parallel,
    profile: ModelProfile,
    batch: int,
    device: str,
    topology: Topology,
    memory: float,
) -> ParallelPlan | BadInput:
    slower = 1.0
    if device != parallel.device:
        slower = ACCELERATOR_SPEEDS[parallel.device].tflops / ACCELERATOR_SPEEDS[device].tflops
    rules = CostRules(memory_bytes=memory, optimizer=parallel.optimizer)

    try:
        request = SplitRequest(
            topology,
            batch,
            rules,
            parallel.scheme,
            parallel.allow_delay,
            stages=parallel.stages,
            pipelines=parallel.replicas,
            chunks=parallel.chunks,
            recompute=parallel.recompute,
            tensor=parallel.tensor,
        )
        layers = (
            replace(
                layer,
                forward_seconds=layer.forward_seconds * slower,
                backward_seconds=layer.backward_seconds * slower,
                update_seconds={
                    name: seconds * slower for name, seconds in layer.update_seconds.items()
                },
            )
            for layer in profile.layers
        )
        scaled = replace(profile, layers=tuple(layers))
        split = plan([scaled], request, "profiled" if device == parallel.device else "scaled")
        return replace(split, every=parallel.elastic.every)
    except BadInput as error:
        return error


def _least_stages(
    parallel: Parallel,
    profile: ModelProfile,
    batch: int,
    device: str,
    topology: Topology,
    memory: float,
) -> int:
    """Stages of the shortest pipeline that fits into memory; 1 if there is none."""
    if memory == inf:
        return 1

    links = topology.bandwidths[-1:]
    most_stages = min(topology.devices, len(profile.layers))
    depths = range(1, most_stages + 1)
    alone = (
        replace(parallel, stages=stages, replicas=1, chunks=1, scheme="flush") for stages in depths
    )
    plans = (
        _planned(given, profile, batch, device, Topology((stages,), links), memory)
        for stages, given in zip(depths, alone, strict=True)
    )

    planned = zip(depths, plans, strict=True)
    possible = (stages for stages, split in planned if isinstance(split, ParallelPlan))
    return next(possible, 1)


def as_trained(parallel: Parallel) -> Parallel:
    """The settings that the nodes of a training follow: they change their layout as machines come
    and go, but nothing else is left to a plan."""
    scheme = "flush" if parallel.scheme == AUTO else parallel.scheme
    chunks = parallel.chunks or (_CHUNKS if scheme == "interleaved" else 1)
    tensor = parallel.tensor or 1
    return replace(
        parallel, scheme=scheme, chunks=chunks, recompute=bool(parallel.recompute), tensor=tensor
    )


def samples_of(parallel: Parallel, profile: ModelProfile) -> int:
    """Samples of an update."""
    return parallel.batch or _MICROBATCHES * profile.microbatch


def profile_of(parallel: Parallel, profiles: Sequence[ModelProfile]) -> ModelProfile:
    """The profile with the requested, else the largest microbatch. All types use one microbatch
    size: a run that moves keeps its microbatches, and so its result."""
    fitting = [profile for profile in profiles if parallel.microbatch in (None, profile.microbatch)]
    if not fitting:
        sizes = ", ".join(str(profile.microbatch) for profile in profiles)
        raise BadRequest(f"parallel.microbatch is {parallel.microbatch}; the profile has {sizes}")
    return max(fitting, key=lambda profile: profile.microbatch)


def _speed(
    parallel: Parallel,
    profile: ModelProfile,
    batch: int,
    shape: tuple[str, Topology, float],
    market_speed: float,
) -> TypeSpeed | BadInput:
    split = _planned(parallel, profile, batch, *shape)
    if isinstance(split, BadInput):
        return split

    nodes = shape[1].counts[1]
    seconds = 3600 / market_speed
    per_hour = split.samples_per_second / batch * seconds
    low, high = (speed / batch * seconds for speed in split.interval)
    fastest = split.interval[1] / split.samples_per_second
    spread = log(fastest) / _NORMAL_P90
    least_stages = _least_stages(parallel, profile, batch, *shape)
    return TypeSpeed(
        per_hour / nodes,
        f"planned: {summary(split)}, {per_hour:.4g} updates per hour ({low:.4g} to {high:.4g}, "
        f"{split.basis})",
        spread=spread,
        split=split,
        least_stages=least_stages,
    )
