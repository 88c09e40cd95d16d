"""Looking at what a bonus has learned."""
