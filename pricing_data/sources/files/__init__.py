"""Files as a source: change events, on-demand tables and interruption buckets, as CSV (plain or gzip) or AWS's JSON."""

from pricing_data.sources.files.reader import BadRow, Portion, read

__all__ = ["BadRow", "Portion", "read"]
