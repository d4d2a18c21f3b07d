"""The studies of the paper: plans of jobs, backends that run them, and the tables they fill."""
