"""The roles of a node as state machines: messages in, actions out."""
