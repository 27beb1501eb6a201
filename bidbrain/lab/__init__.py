"""Research on recorded markets: backtests, regions, clusters, calibration. A launch imports nothing
of this.
"""
