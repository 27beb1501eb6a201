"""Pure policies: values that observe a job and propose changes to its controller."""
