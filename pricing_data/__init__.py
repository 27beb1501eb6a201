"""Markets: what every one cost and how often it evicted, where that comes from and where it is kept."""
