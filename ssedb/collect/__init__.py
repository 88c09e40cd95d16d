"""How experience is gathered."""
