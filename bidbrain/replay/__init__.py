"""The recorded market played again, alone (`market`) or with a job that a strategy rents machines
for (`job`).
"""
