"""Messages between nodes and the controller, and the actions that a role asks for."""
