"""The work of a job as values: which chunks a clock has, which are left, which have arrived, which were accepted."""
