"""Rooms: N small pixel worlds whose true state is known, stepped as tensors on any device."""
