"""How Sphinx builds the site: `make docs`. Fonts are those of the reader's computer, and nothing is
fetched.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import reference

PAGES = {
    "Start": "tutorial faq script-or-trainer which-strategy glossary",
    "How to": "troubleshooting nightly budget-and-deadline tracking several-jobs teams training trainers"
    " reports prices gpus aws google-cloud azure vast runpod slurm between-machines parallel",
    "Reference": "generated/commands generated/job-file generated/json generated/metrics settings commands focus"
    " python-api",
    "Explanation": "planning guarantees proof papers machines remote-runner",
    "For maintainers": "internals/architecture internals/own-strategy internals/write-a-cloud"
    " internals/container-clouds internals/test-clouds internals/forecast"
    " internals/scripts-and-trainers internals/stragglers internals/pipelines internals/papers "
    "internals/benchmarks internals/threats decisions/index",
}
"""The pages of each section, in order. `make docs` fails for a page that is in none."""

project = "spotctl"
html_title = "spotctl"
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
smartquotes = False  # they would turn --option into a dash
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#14866d", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#48bd9f", "color-brand-content": "#5fcfa8"},
}


def setup(app):
    """Called by Sphinx."""
    app.connect(
        "builder-inited", lambda builder: reference.write(Path(builder.srcdir) / "generated")
    )
    app.connect("source-read", _add_contents)


def _add_contents(_app, page, source):
    """The tables of contents stand here, so that the pages read well without Sphinx, too."""
    if page == "index":
        source[0] += "".join(
            _contents(pages.split(), f":caption: {title}") for title, pages in PAGES.items()
        )
    if page == "decisions/index":
        source[0] += _contents(["0*"], ":glob:")


def _contents(pages, *options):
    return "\n```{toctree}\n" + "\n".join((":hidden:", *options, *pages)) + "\n```\n"
