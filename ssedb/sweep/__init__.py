"""Many runs from one grid file: its plan, and a pool of processes or a Ray cluster to run it."""
