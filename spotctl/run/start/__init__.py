"""The start of runs: reads all that a plan or a run needs, plans jobs, and launches, resumes and
stops runs.
"""
