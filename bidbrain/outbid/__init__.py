"""Bids for hosts that run the highest bid: the odds of being outbid, the cost of a bid, and the
best one.
"""
