"""Faults: what docs/reliability.md promises, with the fault made to happen."""
