"""How experience is gathered: rollouts, the collectors that fill them, scores."""
