"""PipeDream, PipeDream-2BW and PTD-P: the planner's splits and closed forms, for models and
clusters of the papers.

Measured profiles exist of convolutional networks and of GNMT. Transformers are computed from their
shapes and a speed of the GPUs that the text states, so these results are arithmetic, without
chance.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from statistics import median

from agileml.pipeline.plan.candidates import (
    StageCost,
    balanced_spans,
    double_buffered_seconds,
    flush_batch_seconds,
    unpipelined_seconds,
)
from agileml.pipeline.plan.parallel_plan import Topology
from agileml.pipeline.plan.partition import partition, split_bytes, stage_bytes
from agileml.pipeline.profile.graph_text import read_graph
from agileml.pipeline.profile.model_profile import CostRules, ModelProfile, SpanTables, sync_factor
from agileml.pipeline.schedule.schedules import ScheduleShape, orders, replicated_orders
from agileml.pipeline.schedule.simulator import StageTimes, play
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData
from spotctl.lab.transformer import TransformerLayout, TransformerShape, traffic

# -- PipeDream: measured profiles on three groups of GPUs

PCIE, NVLINK, TEN_GBIT = 12.5e9, 30e9, 1.25e9
"""Bytes per second between GPUs of a server (N961, N963) and between servers (N1612)."""
GPUS = {
    "1x4 (A)": Topology((4,), (PCIE,)),
    "4x4 (A)": Topology((4, 4), (PCIE, TEN_GBIT)),
    "2x8 (B)": Topology((8, 2), (NVLINK, 2.5 * TEN_GBIT)),
}
MODELS = {
    "VGG-16": "vgg16",
    "AlexNet": "alexnet",
    "ResNet-50": "resnet50",
    "GNMT-8": "gnmt",
    "GNMT-16": "gnmt_large",
}
_FOLDER = "pipedream_profiles/"
_PROFILES = tuple(f"{_FOLDER}{file}.txt" for file in MODELS.values())


def profile_of(model: str, data: PaperData) -> ModelProfile:
    text = data.file(f"{_FOLDER}{MODELS[model]}.txt").read_text(encoding="utf-8")
    return read_graph(text, model=model, microbatch=1, crossing=2)


def straight_seconds(profile: ModelProfile, topology: Topology, workers: int) -> float:
    """Seconds per input of the most balanced pipeline of one worker for each stage."""
    tables, slowest = SpanTables.of(profile), topology.bandwidths[-1]
    stages = min(workers, len(profile.layers))
    spans = balanced_spans(tables, workers)[stages]
    times = [float(tables.seconds[span]) for span in spans]
    for _, last in spans[:-1]:
        sent = 2 * float(tables.outputs[last])
        times.append(sent / slowest)
    return max(times)


def _splits(_: int, data: PaperData, *, usual: bool = False) -> FigureValues:
    profiles = {model: profile_of(model, data) for model in MODELS}
    if usual:
        profiles = {model: without_outlier(profile) for model, profile in profiles.items()}
    large = GPUS["4x4 (A)"]
    chosen = {model: partition(profile, large, CostRules()) for model, profile in profiles.items()}
    stages, values = chosen["VGG-16"].stages, dict[str, float]()
    values["VGG-16, 4x4 (A): workers of the first stage"] = stages[0].replicas
    values["VGG-16, 4x4 (A): workers of the last stage"] = stages[-1].replicas
    values["ResNet-50, 4x4 (A): stages"] = len(chosen["ResNet-50"].stages)

    # The last stage is where the fully connected layers are.
    model_profile = profiles["AlexNet"]
    like = chosen["AlexNet"]
    # The same cut with twelve workers before it and one after, as far as links go.
    workers = (12, 1)
    tables, cut = SpanTables.of(model_profile), like.stages[0].last
    slowest, last = large.bandwidths[-1], len(model_profile.layers) - 1
    sent = 2 * float(tables.outputs[cut])
    times = [sent / slowest]
    for span, count in zip(((0, cut), (cut + 1, last)), workers, strict=True):
        weights, seconds = float(tables.weights[span]), float(tables.seconds[span])
        synced = sync_factor(count, "ring") * weights / slowest
        slower = max(seconds, synced)
        times.append(slower / count)

    alexnet = max(times)

    published = {"AlexNet": alexnet}
    for model in ("GNMT-8", "GNMT-16"):
        published[model] = straight_seconds(profiles[model], large, large.devices)

    for model, seconds in published.items():
        ratio = seconds / chosen[model].seconds
        values[f"{model}, 4x4 (A): planned time of the published split over ours"] = ratio

    return values


def without_outlier(profile: ModelProfile) -> ModelProfile:
    """The slowest layer's backward pass as much longer than its forward pass as in other layers."""
    slowest = max(profile.layers, key=attrgetter("seconds"))
    least, ratios = 0.1 * slowest.forward_seconds, list[float]()
    for layer in profile.layers:
        if layer.forward_seconds > least:
            ratios.append(layer.backward_seconds / layer.forward_seconds)

    usual = replace(slowest, backward_seconds=median(ratios) * slowest.forward_seconds)
    layers = [usual if layer is slowest else layer for layer in profile.layers]
    return replace(profile, layers=tuple(layers))


def _speedups(_: int, data: PaperData, *, flat_ring: bool = False) -> FigureValues:
    values = {}
    for model in MODELS:
        profile = profile_of(model, data)
        for name, topology in GPUS.items():
            ours = partition(profile, topology, CostRules())

            n, slowest = topology.devices, topology.bandwidths[-1]
            if flat_ring:
                # The GPUs of a server share its link: each hop leads to another server.
                slowest /= topology.counts[0]
            sending = sync_factor(n, "ring") * profile.weight_bytes / slowest
            parallel = max(profile.seconds, sending) / n

            values[f"{model}, {name}"] = parallel / ours.seconds
    return values


_FOUR = 4


def _stashing(_: int, data: PaperData) -> FigureValues:
    """Weight stashing on four GPUs of a server: what it holds, and what more inputs in flight
    bring.
    """
    values, gains, rules = dict[str, float](), list[float](), CostRules()
    for model in ("VGG-16", "GNMT-8", "GNMT-16"):
        profile = profile_of(model, data)
        tables, held = SpanTables.of(profile), list[float]()
        for s, span in enumerate(balanced_spans(tables, _FOUR)[_FOUR]):
            of_stage = stage_bytes(tables, *span, _FOUR - s, rules)
            held.append(of_stage)
        alone = stage_bytes(tables, 0, len(profile.layers) - 1, 1, rules)
        fullest = max(held) / alone
        values[f"{model}: memory of the fullest of 4 stages over data parallelism"] = fullest

    for model in ("VGG-16", "AlexNet", "GNMT-8", "GNMT-16"):
        profile = profile_of(model, data)
        straight = straight_seconds(profile, GPUS["1x4 (A)"], _FOUR)
        gains.append(profile.seconds / straight)

    values["least gain of a straight pipeline over model parallelism"] = min(gains)
    # As many inputs as the pipeline is deep, and three more.
    times = _stage_times(profile_of("GNMT-8", data), GPUS["1x4 (A)"], _FOUR)
    periods = list[float]()
    for extra in (0, 3):
        orders = replicated_orders((1,) * _FOUR, 60, extra)
        periods.append(play(orders, times).period())
    few, many = periods
    values["GNMT-8: throughput with 7 inputs in flight over 4"] = few / many

    return values


V100_BYTES = 16e9
"""Memory of the GPUs of both clusters (N1654, N1658)."""


def _within_memory(_: int, data: PaperData) -> FigureValues:
    """Splits that fit into the memory of 16 V100s, next to the published algorithm's, which knows
    no memory.
    """
    values, topology = dict[str, float](), GPUS["4x4 (A)"]
    rules = {"published": CostRules(), "ours": CostRules(memory_bytes=V100_BYTES)}
    for model in ("VGG-16", "ResNet-50"):
        profile, seconds = profile_of(model, data), dict[str, float]()
        for whose, costs in rules.items():
            split = partition(profile, topology, costs)
            fullest = max(split_bytes(split, SpanTables.of(profile), costs))
            share = fullest / V100_BYTES
            values[f"{model}: memory of the fullest stage over the GPU's, {whose}"] = share
            seconds[whose] = split.seconds
        longer = seconds["ours"] / seconds["published"]
        values[f"{model}: time over that of the published split"] = longer

    return values


def _stage_times(profile: ModelProfile, topology: Topology, stages: int) -> list[StageTimes]:
    tables, slowest = SpanTables.of(profile), topology.bandwidths[-1]
    times = list[StageTimes]()
    for first, last in balanced_spans(tables, stages)[stages]:
        layers, send = profile.layers[first : last + 1], 0.0
        if last < len(profile.layers) - 1:
            send = profile.layers[last].output_bytes / slowest
        forward = sum(layer.forward_seconds for layer in layers)
        backward = sum(layer.backward_seconds for layer in layers)
        times.append(StageTimes(forward, backward, send))

    return times


def _flushes(_: int, data: PaperData, *, recompute: bool = False) -> FigureValues:
    """GPipe with as many inputs as PipeDream has in flight, on the same straight pipeline of
    GNMT-16 over 16 GPUs.
    """
    profile, stages = profile_of("GNMT-16", data), 16
    shape, values = ScheduleShape("gpipe", stages, stages, 6), dict[str, float]()
    in_flight = (1,) * stages
    for name in ("4x4 (A)", "2x8 (B)"):
        times = _stage_times(profile, GPUS[name], stages)
        stashed = play(replicated_orders(in_flight, 100), times).period()
        if recompute:
            times = [replace(stage, backward=stage.backward + stage.forward) for stage in times]
        lines = [[order] for order in orders(shape)]
        flushed = play(lines, times).period()
        values[f"{name}: throughput lost with flushes"] = 1 - stashed * stages / flushed

    return values


# -- transformers: closed forms


@dataclass(frozen=True)
class GpuServers:
    """Servers of `gpus` GPUs. `within` is the bytes per second between two GPUs of a server, `card`
    those of each of its network `cards`, of which `ring_cards` serve an all-reduce.

    A GPU computes at `flops` per second; a microbatch of b samples runs as fast as b + `fixed`
    samples without it.
    """

    gpus: int
    within: float
    card: float
    cards: int
    flops: float
    fixed: float = 0.0
    ring_cards: int = 1

    def between(self, senders: int) -> float:
        """Bytes per second out of a server for each of its GPUs that send at the same time."""
        sharing = min(senders, self.gpus)
        return self.card * min(1.0, self.cards / sharing)

    def around(self, ring: int, rings: int) -> float:
        """Bytes per second of each of several rings of neighbors; beyond a server, they share its
        cards.
        """
        if ring <= self.gpus:
            return self.within
        return self.card * self.ring_cards / min(rings, self.gpus)


V100 = GpuServers(gpus=8, within=NVLINK, card=2.5 * TEN_GBIT, cards=1, flops=45e12)
"""N2837: about 45 teraFLOP/s on one GPU; N1613."""
A100 = GpuServers(
    gpus=8, within=300e9, card=25e9, cards=8, flops=163e12 * 1.3, fixed=0.3, ring_cards=8
)
"""N4084: eight cards of 200 Gbit/s. A larger microbatch is up to 1.3 times as fast (N3906); the
trillion parameters run at 163 teraFLOP/s with microbatches of 1 (N4318)."""

_BYTES = 2
"""Bytes of an element in mixed precision."""


@dataclass(frozen=True)
class GptTraining:
    """A transformer of a paper on some servers: `batch` sequences, split over stages, pipelines and
    tensor parts.
    """

    shape: TransformerShape
    servers: GpuServers
    layout: TransformerLayout
    batch: int
    microbatch: int = 1
    chunks: int = 1
    recompute: bool = True
    scatter: bool = True
    hidden: bool = False
    """Gradients are reduced behind the backward passes."""

    def stage(self) -> StageCost:
        """The slowest stage, whose link leaves the server if the pipeline does."""
        t, p, d = self.layout.tensor, self.layout.stages, self.layout.pipelines
        shape, servers = self.shape, self.servers
        moved = traffic(shape, self.layout, self.microbatch, self.chunks, scatter=self.scatter)
        # With the recomputed forward pass, there are four parts of equal size: two of them are the
        # backward pass.
        operations = shape.batch_operations(self.microbatch) / 4 / (p * t)
        work = operations * (self.microbatch + servers.fixed) / self.microbatch
        forward = work / servers.flops

        # Half of the exchange between tensor parts is the forward pass's.
        exchanged = shape.layers / p * moved.tensor * _BYTES / 2
        exchange = exchanged / servers.around(t, 1)
        link = servers.between(t)
        if p * t <= servers.gpus:
            link = servers.within
        passing = moved.cut * _BYTES / link
        if self.scatter:
            gathered = moved.cut * (t - 1) * _BYTES
            passing += gathered / servers.within
        sync = 0.0
        if d > 1 and not self.hidden:
            sync = moved.batch * _BYTES / servers.around(p * t * d, p * t)

        return StageCost(
            forward_seconds=forward + exchange,
            backward_seconds=2 * forward + exchange,
            link_seconds=2 * passing,
            sync_seconds=sync,
            weight_bytes=_BYTES * shape.parameters / (p * t),
            stash_bytes=0.0,
            input_bytes=0.0,
            recompute=self.recompute,
        )

    def seconds(self, scheme: str = "flush") -> float:
        """A batch: with flushes, under 2BW, or with one stage at a time."""
        stages = [self.stage()] * self.layout.stages
        m = self.batch // (self.layout.pipelines * self.microbatch)
        if scheme == "2bw":
            return double_buffered_seconds(stages, m) * m
        if scheme == "flush":
            return flush_batch_seconds(stages, m, self.chunks)
        return unpipelined_seconds(stages, m) * m

    @property
    def teraflops(self) -> float:
        """Per GPU, counting a recomputed forward pass as work, as the text does."""
        gpus = self.layout.tensor * self.layout.stages * self.layout.pipelines
        return self.shape.batch_operations(self.batch) / self.seconds() / gpus / 1e12


def gpt(layers: int, hidden: int, sequence: int = 2048) -> TransformerShape:
    return TransformerShape(layers, hidden, 51_200, sequence)


# -- 2BW

SMALL_GPT, LARGE_GPT = gpt(48, 1920, 512), gpt(48, 2560, 512)
"""2.2 and 3.9 billion parameters with sequences of 512 (N2941); the text states neither layers nor
widths."""
GPIPE_SEQUENCES = 32
"""As many sequences of a batch as GPipe holds at a time (N3103)."""


def _double_buffered(_: int, __: PaperData, *, hidden: bool = False) -> FigureValues:
    """Batches of 512 and of 2048 on 64 GPUs in microbatches of 4, against the same pipelines with
    flushes.
    """
    layout = TransformerLayout(1, 8, 8)
    small = GptTraining(SMALL_GPT, V100, layout, batch=512, microbatch=4, hidden=hidden)
    large = replace(small, shape=LARGE_GPT, layout=TransformerLayout(1, 16, 4))
    rounds = replace(small, batch=GPIPE_SEQUENCES * layout.pipelines)
    with_gpipe = small.batch // rounds.batch * rounds.seconds()
    values = {"time with GPipe": with_gpipe / small.seconds("2bw")}

    for batch in (512, 2048):
        both = [replace(model, batch=batch) for model in (small, large)]
        slower = max(model.seconds() / model.seconds("2bw") for model in both)
        values[f"time with flushes, batch of {batch}"] = slower
    return values


def _unpipelined(_: int, __: PaperData, *, servers: GpuServers = V100) -> FigureValues:
    """2BW against tensor parallelism alone, and against stages that work one at a time."""
    small = GptTraining(SMALL_GPT, servers, TransformerLayout(1, 8, 8), batch=512, microbatch=4)
    large = replace(small, shape=LARGE_GPT, layout=TransformerLayout(1, 16, 4))
    server = replace(small, layout=TransformerLayout(1, 8, 1), batch=64)
    longer = list[float]()
    for pipelined in (server, large):
        stages, pipelines = pipelined.layout.stages, pipelined.layout.pipelines
        tensor = replace(pipelined, layout=TransformerLayout(stages, 1, pipelines))
        longer.append(tensor.seconds() / pipelined.seconds("2bw"))

    on_8, on_64 = longer
    one_at_a_time = small.seconds("unpipelined") / small.seconds("2bw")
    return {
        "time with tensor parallelism on 8 GPUs": on_8,
        "time with tensor parallelism on 64 GPUs": on_64,
        "time with one stage at a time": one_at_a_time,
    }


# -- PTD-P

GPT_3 = gpt(96, 12288)


def _sizes(_: int, __: PaperData) -> FigureValues:
    shapes, values = {"GPT-3": GPT_3}, dict[str, float]()
    for layers, hidden in ((32, 20480), (32, 3840), (80, 12288), (24, 20480)):
        shapes[f"{layers} layers of {hidden}"] = gpt(layers, hidden)
    for name, shape in shapes.items():
        values[f"{name}: billions of parameters"] = shape.parameters / 1e9
    return values


_DAYS = (
    ("GPT-3, 1024 GPUs at 140 teraFLOP/s", 300e9, 175e9, 1024, 140),
    ("a trillion parameters, 3072 GPUs at 163 teraFLOP/s", 450e9, 1e12, 3072, 163),
    ("GPT-3, 384 GPUs at 153 teraFLOP/s", 300e9, 174.6e9, 384, 153),
    ("GPT-3, 1536 GPUs at 141 teraFLOP/s", 300e9, 174.6e9, 1536, 141),
    ("529.6 billion parameters, 2240 GPUs at 159 teraFLOP/s", 300e9, 529.6e9, 2240, 159),
)


def _days(_: int, __: PaperData) -> FigureValues:
    """Eq. 4.4: 8 T P / (n X)."""
    days = dict[str, float]()
    for name, tokens, size, gpus, speed in _DAYS:
        operations, per_second = 8 * tokens * size, gpus * speed * 1e12
        days[name] = operations / per_second / 86_400
    return days


def _tensor_and_pipeline(_: int, __: PaperData, *, servers: GpuServers = A100) -> FigureValues:
    """Figure 4.13."""
    values, worst, shape = dict[str, float](), 1.0, gpt(32, 20480)
    for batch in (32, 128):
        speeds = dict[int, float]()
        for t in (2, 4, 8, 16, 32):
            layout = TransformerLayout(t, 64 // t, 1)
            speeds[t] = GptTraining(shape, servers, layout, batch).teraflops
            values[f"batch of {batch} @ {t}"] = speeds[t]
        fastest, slowest = max(speeds.values()), min(speeds.values())
        values[f"batch of {batch}: fastest tensor-parallel size"] = max(
            speeds, key=speeds.__getitem__
        )
        worst = max(worst, fastest / slowest)

    values["fastest over slowest combination"] = worst
    return values


def _data_and_model(_: int, __: PaperData, *, axis: str) -> FigureValues:
    """Figures 4.14 and 4.15: a model that fits on two GPUs, split further by stages or by tensor
    parts.
    """
    values, falls, shape = dict[str, float](), list[bool](), gpt(32, 3840)
    for batch in (32, 128, 512):
        speeds = list[float]()
        for parts in (2, 4, 8, 16, 32):
            layout = TransformerLayout(parts, 1, 64 // parts)
            if axis == "stages":
                layout = TransformerLayout(1, parts, 64 // parts)
            speed = GptTraining(shape, A100, layout, batch).teraflops
            speeds.append(speed)
            values[f"batch of {batch} @ {parts}"] = speed
        falls += [after < before for before, after in pairwise(speeds)]

    values["steps to twice as many parts that lower the throughput"] = sum(falls) / len(falls)
    return values


def _microbatch(_: int, __: PaperData) -> FigureValues:
    """Figure 4.16, and the estimate of Figure 4.8."""
    values, layout = dict[str, float](), TransformerLayout(8, 8, 1)
    for name, shape in (
        ("91 billion parameters", gpt(112, 8192)),
        ("a billion parameters", gpt(64, 4096)),
    ):
        for batch in (128, 512):
            plain, speeds = GptTraining(shape, A100, layout, batch), dict[int, float]()
            case = f"{name}, batch of {batch}"
            for b in (1, 2, 4, 8):
                speeds[b] = replace(plain, microbatch=b).teraflops
                values[f"{case} @ {b}"] = speeds[b]
            values[f"{case}: fastest microbatch"] = max(speeds, key=speeds.__getitem__)

    return values


def _recomputing(_: int, __: PaperData) -> FigureValues:
    """Figure 4.17."""
    layout = TransformerLayout(8, 16, 1)
    plain = GptTraining(gpt(80, 12288), A100, layout, 16, recompute=False)
    longer = replace(plain, recompute=True).seconds() / plain.seconds()
    return {
        "time added by recomputing": longer - 1,
        "throughput lost to recomputing": 1 - 1 / longer,
    }


def _interleaving(_: int, __: PaperData, *, chunks: int = 2) -> FigureValues:
    """Figure 4.12: GPT-3 on 96 GPUs."""
    values, gains, layout = dict[str, float](), list[float](), TransformerLayout(8, 12, 1)
    for batch in (12, 24, 36, 48, 60):
        plain = GptTraining(GPT_3, A100, layout, batch)
        default, interleaved = plain.teraflops, replace(plain, chunks=chunks).teraflops
        values[f"default @ {batch}"] = default
        values[f"interleaved @ {batch}"] = interleaved
        gains.append(interleaved / default - 1)

    values["largest gain"] = max(gains)
    values["gain at the largest batch"] = gains[-1]
    return values


def _scattering(_: int, __: PaperData, *, chunks: int = 2) -> FigureValues:
    """Figure 4.18: GPT-3 on 96 GPUs with interleaved stages."""
    ours = GptTraining(GPT_3, A100, TransformerLayout(8, 12, 1), 60, chunks=chunks)
    whole = replace(ours, scatter=False)
    return {"gain at the largest batch": ours.teraflops / whole.teraflops - 1}


# -- the table

_FORMULA = "closed form with the text's figures of the hardware"
_SPEED = "teraFLOP/s of a GPU"


_QUICK = 0.1

RESULTS = (
    Experiment(
        "pipedream-splits",
        _splits,
        _QUICK,
        "The second text's splits come out for VGG-16 and ResNet-50; for AlexNet, 6-1 and the "
        "published split take the"
        " same time, which the link behind the convolutions limits, and the planner takes the "
        "fewest GPUs. GNMT-8 is"
        " limited by one layer in a straight pipeline; the second text says that it has too few "
        "layers for 16 stages.",
        cause="a backward pass of the slowest layer that is as much longer than its forward pass "
        "as in others",
        switched=partial(_splits, usual=True),
        needs=_PROFILES,
        seeds=1,
    ),
    Experiment(
        "pipedream-speed-up",
        _speedups,
        _QUICK,
        "Time for each input with data parallelism over that of our split, at the nominal "
        "bandwidths of the clusters;"
        " the papers measured time to accuracy with Gloo. The profile of GNMT-8 computes so little "
        "for each byte of"
        " weights that data parallelism is slower than in the papers at any of these bandwidths.",
        cause="a ring that leaves the server at each hop, so that all GPUs of a server share its "
        "link",
        switched=partial(_speedups, flat_ring=True),
        needs=_PROFILES,
        seeds=1,
    ),
    Experiment(
        "pipedream-stashing",
        _stashing,
        _QUICK,
        "Sums of weight versions, gradients and stashed activations, without the workspaces and "
        "the framework's own"
        " memory, which are the same on both sides and draw the papers' ratio towards 1.",
        needs=_PROFILES,
        seeds=1,
    ),
    Experiment(
        "pipedream-memory",
        _within_memory,
        _QUICK,
        "The published algorithm takes no account of memory: where its split needs more than a GPU "
        "has, the planner pays with time for one that fits.",
        needs=_PROFILES,
        seeds=1,
    ),
    Experiment(
        "pipedream-gpipe",
        _flushes,
        _QUICK,
        "The flush alone costs (p-1)/(m+p-1) = 48% with as many inputs as stages; the rest is what "
        "the papers' implementation loses besides, which differs between their clusters.",
        cause="a second forward pass in GPipe",
        switched=partial(_flushes, recompute=True),
        needs=_PROFILES,
        seeds=1,
    ),
    Experiment(
        "pipedream-other-models",
        None,
        0.0,
        "The profiles of AWD LM and S2VT were not published.",
        seeds=1,
    ),
    Experiment(
        "2bw",
        _double_buffered,
        _QUICK,
        f"From the {_FORMULA}; the text states no shapes for its models and no microbatches, so 48 "
        "layers and"
        " microbatches of 4 are ours. GPipe runs rounds of the 32 sequences that fit into memory; "
        "if it reduced"
        " gradients behind the backward passes, it would take 1.9 times as long, not 3.3.",
        cause="gradients that are reduced behind the backward passes",
        switched=partial(_double_buffered, hidden=True),
        seeds=1,
    ),
    Experiment(
        "2bw-unpipelined",
        _unpipelined,
        _QUICK,
        f"From the {_FORMULA}; one NVLink of 30 GB/s makes tensor parallelism within a server too "
        "slow.",
        cause="five such links for an all-reduce within a server",
        switched=partial(_unpipelined, servers=replace(V100, within=5 * NVLINK)),
        seeds=1,
    ),
    Experiment(
        "ptd-p-parameters",
        _sizes,
        _QUICK,
        "Eq. 4.3, with the text's vocabulary of 51,200 and sequences of 2,048.",
        seeds=1,
    ),
    Experiment(
        "ptd-p-days",
        _days,
        _QUICK,
        "Arithmetic: Eq. 4.4 with the throughput that the paper measured; nothing of it is "
        "measured here.",
        seeds=1,
    ),
    Experiment(
        "ptd-p-tensor-pipeline",
        _tensor_and_pipeline,
        _QUICK,
        f"Figure 4.13 from the {_FORMULA}: with small batches, the pipeline's flush costs more "
        "than exchanging parts"
        " between two servers. The batches of 32 and 128 are ours: those of the figure are not in "
        "the text.",
        cause="one of a server's eight cards for an all-reduce between servers",
        switched=partial(_tensor_and_pipeline, servers=replace(A100, ring_cards=1)),
        axes=("tensor-parallel size", _SPEED),
        seeds=1,
    ),
    Experiment(
        "ptd-p-pipeline-data",
        partial(_data_and_model, axis="stages"),
        _QUICK,
        f"Figure 4.14 from the {_FORMULA}: the throughput falls with each doubling, as in the "
        "paper.",
        axes=("stages", _SPEED),
        seeds=1,
    ),
    Experiment(
        "ptd-p-tensor-data",
        partial(_data_and_model, axis="tensor"),
        _QUICK,
        f"Figure 4.15 from the {_FORMULA}: the throughput falls with each doubling, as in the "
        "paper.",
        axes=("tensor-parallel size", _SPEED),
        seeds=1,
    ),
    Experiment(
        "ptd-p-microbatch",
        _microbatch,
        _QUICK,
        "Figures 4.16 and 4.8: a microbatch of b samples is taken to run (1 + .3/b) times as long "
        "per sample, from the"
        " text's largest gain of 1.3. Neighbors of the best microbatch are within 5%, so it moves "
        "with the batch; the batches of 128 and 512 are ours.",
        axes=("microbatch", _SPEED),
        seeds=1,
    ),
    Experiment(
        "ptd-p-recomputing",
        _recomputing,
        _QUICK,
        "A second forward pass adds a third to the time, as section 3.4.7 says; that takes a "
        "quarter of the throughput,"
        " not the third that the text of Figure 4.17 prints. It states no memory for activations, "
        "so the gain from larger batches is not computed.",
        seeds=1,
    ),
    Experiment(
        "ptd-p-interleaving",
        _interleaving,
        _QUICK,
        "Two chunks for each GPU, as in Figure 4.4; the text states neither the chunks nor the "
        "batches of Figure 4.12."
        " At smaller batches the formula gains more: without other overheads, the flush is all "
        "that the schedules differ in.",
        cause="four chunks for each GPU",
        switched=partial(_interleaving, chunks=4),
        axes=("batch", _SPEED),
        seeds=1,
    ),
    Experiment(
        "ptd-p-scatter-gather",
        _scattering,
        _QUICK,
        "Two chunks for each GPU, as in Figure 4.4; the text states neither the chunks nor the "
        "batches of Figure 4.18.",
        cause="eight chunks for each GPU, of a layer each",
        switched=partial(_scattering, chunks=8),
        seeds=1,
    ),
)
