"""Recipes: which data, which model, how it is trained; and the paper's grid as changes to any of them."""
