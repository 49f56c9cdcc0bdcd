"""Checkpoints and datasets shared on the Hub: what is uploaded, and the card that says what it is."""
