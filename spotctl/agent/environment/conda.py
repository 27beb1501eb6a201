"""Installs conda's packages with rattler: a program that uv runs with py-rattler, without the rest
of the code around it. Its argument is JSON: `channels`, `specs` and `prefix`.
"""

import asyncio
import json
import os
import sys

from rattler import Channel, MatchSpec, Platform, VirtualPackage, install, solve


async def main(given: dict[str, list[str]]) -> None:
    platforms = [Platform.current(), Platform("noarch")]
    records = await solve(
        [Channel(name) for name in given["channels"]],
        [MatchSpec(text) for text in given["specs"]],
        platforms=platforms,
        virtual_packages=VirtualPackage.detect(),
    )
    await install(records, str(given["prefix"]), show_progress=False)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
    # All is installed, and rattler's threads now and then crash an interpreter that ends by itself.
    os._exit(0)
