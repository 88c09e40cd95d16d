"""Analyses of a trained bonus: probe, spikes and t-SNE."""
