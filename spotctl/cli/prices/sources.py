"""`spotctl lab prices sources`: where prices come from."""

from dataclasses import asdict

import typer

from spotctl.cli.session import JsonOption, Session


def sources(context: typer.Context, json_: JsonOption = False) -> None:
    """List the sources of prices: what each provides and needs. Most need no account.

    Example: spotctl lab prices sources

    \f

    Fields:
        sources: what can be fetched
        sources[] -> pricing_data.sources.base:SourceNeeds
    """
    from pricing_data.sources.base import FILES
    from spotctl.clouds.parts import prices_of
    from spotctl.home.cloud import rented_clouds
    from spotctl.show.prices import fetch_plan

    session: Session = context.obj
    needed = [*(needs for cloud in sorted(rented_clouds()) for needs in prices_of(cloud).NEEDS), FILES]
    session.answer(json_, {"sources": [asdict(source) for source in needed]}, fetch_plan.needs(needed))
