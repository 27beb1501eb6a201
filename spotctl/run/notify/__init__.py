"""Messages to the webhook of a job: the end of a run, and the result of a night."""
