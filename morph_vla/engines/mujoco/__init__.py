"""MuJoCo, embedded."""
