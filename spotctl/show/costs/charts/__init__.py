"""Charts of a report as SVG inside a page. Colors are classes, which the page's style sheet defines."""
