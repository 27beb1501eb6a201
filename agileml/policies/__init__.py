"""Pure policies that observe a job and propose changes to the controller."""
