"""A page of `spotctl ui`: its style, and the script that renews it every two seconds without losing one's place."""

from base64 import b64encode
from hashlib import sha256

from spotctl.show.costs.document import document
from spotctl.show.costs.html import Html, el, fragment

_SCRIPT = Html("""
const renew = async () => {
  let fresh = false;
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.querySelector("main");
    const open = [...document.querySelectorAll("main details")].map(details => details.open);
    main.querySelectorAll("details").forEach((details, place) => { details.open = open[place] ?? details.open; });
    document.querySelector("main").replaceWith(main);
    document.title = page.title;
    fresh = true;
  } catch {}
  document.body.classList.toggle("stale", !fresh);
  setTimeout(renew, 2000);
};
setTimeout(renew, 2000);
""")

_STYLE = """
main { padding-top: 1.5rem; }
section { margin-top: 1.75rem; padding-top: 1rem; }
nav { font-size: .875rem; } a { color: var(--s0); }
pre { overflow-x: auto; font-size: .8125rem; background: var(--panel); padding: .75rem; border-radius: 8px; }
.over { display: none; }
.stale .over { display: block; position: sticky; top: 0; margin: 0; max-width: none; text-align: center; }
"""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none';"
    f" script-src 'sha256-{b64encode(sha256(_SCRIPT.encode()).digest()).decode()}'"
)
"""The Content-Security-Policy of the pages: their own script, and requests to their own server."""


def renewed_page(title: str, *children: str) -> str:
    """A page that shows what is true now, and says when the server has ended."""
    return document(
        title,
        fragment(
            el("style", Html(_STYLE)),
            el("p", "spotctl ui has ended; this is what it showed last.", class_="notice over"),
            el("main", *children),
            el("script", _SCRIPT),
        ),
    )
