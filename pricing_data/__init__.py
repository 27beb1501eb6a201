"""Market data of the clouds: prices and evictions, the sources they are fetched from, and the
store.
"""
