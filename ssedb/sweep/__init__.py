"""Many runs from one file: a grid, its plan, and who runs it (a pool of processes here, or a Ray cluster)."""
