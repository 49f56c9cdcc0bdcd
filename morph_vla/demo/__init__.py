"""The main job, small and real: from a URDF to a success rate with its interval (`job.run`)."""

NO_BASE = "none"
BASE = NO_BASE
"""What the demo fine-tunes where nobody says it; NO_BASE trains from random weights."""
