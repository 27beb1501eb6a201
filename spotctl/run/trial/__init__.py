"""`spotctl try CLOUD --full`: checks an account and its cloud step by step, with the code that
launches use.
"""
