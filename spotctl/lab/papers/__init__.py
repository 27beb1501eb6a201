"""`spotctl lab reproduce`: headline results of the papers, measured here and compared with what the
papers print.
"""
