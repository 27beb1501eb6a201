"""The job file: values, forms, checks, errors that name the line, JSON Schema."""
