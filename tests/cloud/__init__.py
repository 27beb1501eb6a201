"""Clouds on this computer: the APIs of AWS, Google Cloud and Azure, and machines that really run
behind them.
"""
