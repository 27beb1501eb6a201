"""Messages to people who do not sit at the terminal: what a run came to, posted to the job's webhook."""
