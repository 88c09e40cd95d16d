"""Collection of experience: rollouts, the collectors that fill them, scores."""
