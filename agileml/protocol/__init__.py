"""What nodes and the controller send each other, and the actions a role asks for."""
