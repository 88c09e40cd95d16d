"""Analyses of a trained bonus: probe, spikes, t-SNE and maps."""
