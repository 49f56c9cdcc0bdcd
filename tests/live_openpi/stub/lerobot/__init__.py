"""See lerobot_dataset.py."""
