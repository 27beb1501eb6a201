"""`spotctl lab reproduce`: the papers' headline results, measured here."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest, require_plots


def reproduce(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Results.",
            metavar="[NAME]...",
            show_default="all that fit into ten minutes on two cores",
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List all results and the time each takes.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="Seeds of each result.", min=1, show_default="5, or as the paper has it"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of records that are not packaged, such as prices/FILE.csv.gz."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Output folder for a picture of each result.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Page to write the results into (Markdown); what it says of others stays."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Reproduce headline results of the papers behind spotctl: Proteus, TierML, FlexRR, DBW, PSLD,
    PipeDream, 2BW, PTD-P, Gavel, and the study of cloud prices.

    Each figure stands next to the paper's, with a 95% interval over seeds. reproduced: it is within
    the paper's own spread, or within 10% of a single figure. explained: switching only the cause
    that is named closes two thirds of the gap. other record: the paper's own record cannot be had,
    and ours is of another time.

    Example: spotctl lab reproduce gavel-las-single pricing-tables
    """
    from spotctl.cli.progress import in_processes
    from spotctl.lab.papers import page as papers, results
    from spotctl.show.columns import as_json, table

    session: Session = context.obj
    require_plots(plot or page)
    if data is not None and not data.is_dir():
        raise BadRequest(
            f"--data {data}: is not a folder (name the one that holds prices/, gavel/ and others)"
        )
    if list_:
        known = list(results.all_results().values())
        session.answer(
            json_,
            as_json(papers.LIST, {"results": known}),
            table(papers.LISTED, known, session.out.width, names=2),
        )
        return

    started = time.monotonic()
    files = results.PaperData(data)
    asked = results.chosen(names or [], seeds)
    session.remark(*(f"{each.name}: {papers.planned(each, seeds)}" for each in asked))
    runs = results.tasks(asked, files, seeds)
    answers = in_processes(
        session, "reproducing", partial(results.measure, data=files), runs, results.CORES
    )
    measured = dict(zip(runs, answers, strict=True))
    done = [results.compare(each, files, seeds, measured) for each in asked]
    if plot is not None:
        papers.plot(plot, done)
    if page is not None:
        papers.write_page(page, done)
    seconds = time.monotonic() - started
    if json_:
        session.answer_json(as_json(papers.ANSWER, {"results": done, "wall_seconds": seconds}))
        return

    for each in done:
        session.out.print(f"\n{each.result.name}: {each.text.title}")
        if each.figures:
            session.out.print(table(papers.FIGURE, each.figures, session.out.width))
        session.out.print(*papers.lines(each), sep="\n")

    session.remark(f"{len(done)} results in {seconds:.0f} s")
