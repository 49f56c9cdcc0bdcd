"""Robots that differ from a given one in their bodies, drawn by a seed (`morph-vla robots vary`)."""
