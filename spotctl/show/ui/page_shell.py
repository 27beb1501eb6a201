"""A page of `spotctl ui`: its style, and the script that renews it every two seconds without losing one's place."""

from base64 import b64encode
from datetime import datetime
from hashlib import sha256

from spotctl.show.costs.markup import Html, el, fragment
from spotctl.show.costs.page_parts import document

# Nodes that stay keep their focus, selection and scroll position. A link that gets the place of another one would take
# over its focus, so the focus then goes to the link that was chosen.
_SCRIPT = Html("""
const renewAttributes = (node, fresh) => {
  for (const name of node.getAttributeNames()) {
    if (name !== "open" && !fresh.hasAttribute(name)) node.removeAttribute(name);
  }
  for (const name of fresh.getAttributeNames()) {
    if (node.getAttribute(name) !== fresh.getAttribute(name)) node.setAttribute(name, fresh.getAttribute(name));
  }
};
const renewNode = (node, fresh) => {
  if (node.isEqualNode(fresh)) return;
  if (node.nodeName !== fresh.nodeName) return node.replaceWith(fresh);
  if (node.nodeType !== Node.ELEMENT_NODE) { node.data = fresh.data; return; }
  renewAttributes(node, fresh);
  const nodes = [...node.childNodes], wanted = [...fresh.childNodes];
  nodes.slice(wanted.length).forEach(child => child.remove());
  wanted.forEach((child, place) => place < nodes.length ? renewNode(nodes[place], child) : node.append(child));
};
const renew = async () => {
  let fresh = false;
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const chosen = document.activeElement?.getAttribute("href");
    renewNode(document.querySelector("main"), page.querySelector("main"));
    if (chosen && document.activeElement?.getAttribute("href") !== chosen) {
      document.querySelector(`main a[href="${CSS.escape(chosen)}"]`)?.focus({preventScroll: true});
    }
    document.title = page.title;
    fresh = true;
  } catch {}
  document.body.classList.toggle("stale", !fresh);
  setTimeout(renew, 2000);
};
setTimeout(renew, 2000);
""")

LINKS = Html("""
nav { font-size: .875rem; display: flex; gap: 1.25rem; }
a { color: var(--s0); } nav a { padding: .25rem 0; }
@media print { nav { display: none; } }
""")
"""The style of links, also for the page of costs."""

_STYLE = """
main { padding-top: 1.5rem; }
section { margin-top: 1.75rem; padding-top: 1rem; }
td strong { color: var(--redone); } small { color: var(--soft); }
.after { margin-top: .75rem; font-size: .875rem; }
pre {
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8125rem; background: var(--panel); padding: .75rem;
  border-radius: 8px;
}
.over { display: none; }
.stale .over { display: block; position: sticky; top: 0; margin: 0; max-width: none; text-align: center; }
@media (max-width: 43.75rem) {
  td { white-space: normal; } td:last-child { min-width: 4.75em; } td small { display: block; }
  .versus { grid-template-columns: 1fr auto; gap: .15rem .9rem; }
  .versus dt { grid-column: 1 / -1; margin-top: .45rem; }
}
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
            el("style", LINKS, Html(_STYLE)),
            el("p", "spotctl ui has ended; this is what it showed last.", class_="notice over"),
            el("main", *children),
            el("script", _SCRIPT),
        ),
    )


def short_time(time: str) -> str:
    """`2026-01-15 07:03` for a time of a JSON answer, in UTC as everywhere; empty if there is none."""
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M}" if time else ""
