"""The roles of one machine as state machines: messages in, actions out."""
