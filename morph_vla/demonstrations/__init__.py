"""Demonstrations: scripted experts, recordings of what they do, and the check of a suite by its expert."""
