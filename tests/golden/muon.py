"""Muon's update of one parameter (Jordan et al. 2024; scaled as in Liu et al. 2025), from the definitions."""
import torch


def is_hidden(name):
    """A weight matrix of a layer."""
    return name.startswith("layers.") and name.endswith(".weight") and "norm" not in name


def newton_schulz(update):
    """Moves the singular values of `update` towards 1: applies an odd quintic polynomial to each, five times."""
    x = update / (torch.linalg.norm(update) + 1e-7)
    for _ in range(5):
        once = x @ x.T @ x
        twice = x @ x.T @ once
        x = 3.4445 * x - 4.7750 * once + 2.0315 * twice
    return x


def orthogonalised(update, stacked):
    """Each of the matrices of `stacked` rows separately, scaled to a root mean square of about 0.2."""
    return torch.cat([0.2 * max(part.shape) ** 0.5 * newton_schulz(part) for part in update.split(stacked)])
