"""Results: what evaluations measured, how sure that is, and how two of them differ."""
