"""Files as a source: price changes, on-demand tables and interruption buckets, as CSV (also gzip) or AWS's JSON."""

from pricing_data.sources.files.reader import BadRow, FileBatch, read

__all__ = ["BadRow", "FileBatch", "read"]
