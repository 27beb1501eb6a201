"""Chapter 6 of the Gavel dissertation: what training costs where prices change, on AWS's and
Azure's prices of 2020.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from bidbrain.lab.gavel.pricing_tables import SPEEDUPS, JobType
from pricing_data.library import Library
from pricing_data.store import PriceStore
from spotctl.lab.gavel.analyze import Analysis, PriceAnalysisFile, analysis
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData

THROUGHPUTS = "gavel/simulation_throughputs.json.gz"
AWS, AZURE = "prices/aws_gpu_2019-12_2020-03.csv.gz", "prices/azure_gpu_2020-02_2020-03.csv.gz"
MACHINES = {"azure/Standard_NC24rs_v2": "P100x4", "azure/Standard_NC24rs_v3": "V100x4"}
"""Types of the record that the catalog does not have."""


def _analysis(data: PaperData, types: tuple[JobType, ...] | None = None) -> Analysis:
    """All figures of the chapter; the catalog that is packaged has the list prices."""
    records = [data.file(AWS), data.file(AZURE)]
    file = PriceAnalysisFile(throughputs=data.file(THROUGHPUTS), prices=records, machines=MACHINES)
    with tempfile.TemporaryDirectory() as nothing:
        empty = Library(PriceStore(Path(nothing)))
        return analysis(file, Path(), empty, types)


def _tables(seed: int, data: PaperData) -> FigureValues:
    """Tables 6.2 and 6.3, which depend on prices alone."""
    del seed
    values = dict[str, float]()
    for figure in _analysis(data).figures:
        unit = 100 if figure.unit == "%" else 1
        values[figure.what] = figure.found / unit
    return values


def _speedups(seed: int, data: PaperData, *, closest: bool = False) -> FigureValues:
    """Table 6.1: the mean over a model's batch sizes, or the batch size that is closest to the
    printed figures.
    """
    del seed
    by_model: dict[str, dict[str, dict[str, float]]] = {}
    printed = dict[str, float]()
    for figure in _analysis(data).figures:
        model, _, _ = figure.what.partition(",")
        if model in SPEEDUPS and figure.what.endswith(": throughput"):
            what = figure.what.removesuffix(": throughput")
            by_batch = by_model.setdefault(model, {})
            by_batch.setdefault(figure.case, {})[what] = figure.found
            printed[what] = figure.paper or 1.0

    values = dict[str, float]()
    for by_batch in by_model.values():
        cases = list(by_batch.values())
        if closest:
            off = [max(abs(case[what] / printed[what] - 1) for what in case) for case in cases]
            nearest = off.index(min(off))
            cases = [cases[nearest]]
        for what in cases[0]:
            speedups = [case[what] for case in cases]
            values[what] = sum(speedups) / len(cases)

    return values


def _reductions(seed: int, data: PaperData, *, printed: bool = False) -> FigureValues:
    """Figures 6.5 and 6.6, with our measured throughputs, or with those that Table 6.1 prints."""
    del seed
    types = None
    if printed:
        jobs = list[JobType]()
        for model, by in SPEEDUPS.items():
            rates = {"k80": 1.0, "p100": by["p100"][0], "v100": by["v100"][0]}
            jobs.append(JobType(model, rates))
        types = tuple(jobs)

    by_name = {figure.what: figure.found for figure in _analysis(data, types).figures}
    return {
        "largest reduction, jobs of 4 days": by_name["dynamic over fixed-type, 4 days, best"],
        "largest reduction by moving": by_name["dynamic over multi-cloud, best"],
        "moves of one job": by_name["moves of one job, most (paper: at most)"],
    }


RESULTS = (
    Experiment(
        "pricing-tables",
        _tables,
        2.0,
        "The record and the list prices are of the paper's time; Google's are left out.",
        1,
        (THROUGHPUTS, AWS, AZURE),
    ),
    Experiment(
        "pricing-speedups",
        _speedups,
        2.0,
        "Table 6.1 names no batch sizes, and our throughputs are measured at one to five of them "
        "for each model.",
        1,
        (THROUGHPUTS, AWS, AZURE),
        cause="of each model's batch sizes the one closest to the printed figure",
        switched=partial(_speedups, closest=True),
    ),
    Experiment(
        "pricing-reductions",
        _reductions,
        4.0,
        "Our record has the paper's clouds and season, from 24 February to 25 March 2020, and "
        "other batch sizes.",
        1,
        (THROUGHPUTS, AWS, AZURE),
        cause="the speed-ups of Table 6.1 in place of our throughputs",
        switched=partial(_reductions, printed=True),
    ),
    Experiment(
        "pricing-google",
        None,
        0.0,
        "Google's spot prices of early 2020 are in no record that we have: ours begins in May "
        "2023.",
        1,
    ),
)
