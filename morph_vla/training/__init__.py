"""Recipes, the training step, the loop around it, and checkpoints."""
