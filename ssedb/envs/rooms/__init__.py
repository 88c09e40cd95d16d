"""Rooms: N environments of a pixel world whose true state is known, as tensors on any device."""
