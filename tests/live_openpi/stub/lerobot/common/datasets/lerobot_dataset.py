"""Stands in for lerobot, which openpi pins to a git commit: imported by its loader, unused by fake data."""
