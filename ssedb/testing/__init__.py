"""Conformance checks for bonuses and noises of other packages."""
