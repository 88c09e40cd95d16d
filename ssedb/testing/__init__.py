"""What holds a bonus of one's own to the contract."""
