"""Isaac Lab, for many worlds side by side."""
