"""Charts of a report as SVG inside a page. Colours are classes, which the page's style sheet defines."""
