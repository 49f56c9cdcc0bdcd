"""Layers in NumPy and float64, from the leaves of flax's: what a policy's equations are written with."""

import numpy as np


def dense(leaves, x):
    """A linear layer of the last axis; several axes of outputs become one."""
    kernel = np.asarray(leaves["kernel"], np.float64).reshape(x.shape[-1], -1)
    return x @ kernel + np.asarray(leaves["bias"], np.float64).reshape(-1)


def layer_norm(leaves, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-6)
    return centred / deviation * leaves["scale"] + leaves["bias"]


def gelu(x):
    """Its tanh approximation."""
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
