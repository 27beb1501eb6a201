"""`spotctl doctor`: whether all is well with this computer, the runs and the clouds; each finding with its cure."""
