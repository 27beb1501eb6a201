"""Charts of a report: values to SVG text that stands in a page, takes its colours from it, and asks nothing of it."""
