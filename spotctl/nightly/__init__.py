"""Jobs that a timer runs every night, and the message about each night."""
