"""The bonus in other people's trainers. Nothing else in ssedb imports this package."""
