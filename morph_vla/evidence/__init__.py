"""A study of many trainings: a grid of conditions, splits and seeds, cell by cell, into one answer."""
