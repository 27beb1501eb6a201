"""The processes of a job, how they talk, and what they keep: the same for every engine."""
