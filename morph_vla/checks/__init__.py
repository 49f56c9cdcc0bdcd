"""Checks before hours are spent: a recording on a robot, a dataset, a recipe, a policy on a suite."""
