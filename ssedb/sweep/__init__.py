"""Many runs from one grid file: its plan, and processes here or a Ray cluster to run it."""
