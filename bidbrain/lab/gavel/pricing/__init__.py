"""The price analysis of chapter 6 of the dissertation: the cost of training jobs on markets with
changing prices.
"""
