"""Adafactor's update of one matrix or vector (Shazeer and Stern 2018, Algorithms 4 and 5), with the sums of the paper."""
import math

import torch


class Adafactor:
    """One tensor, which keeps its own state. Vectors are not factored."""

    def __init__(self, shape, dtype, config):
        self.config, self.step = config, 0
        self.rows = torch.zeros(shape[0], dtype=dtype)
        self.columns = torch.zeros(shape[-1], dtype=dtype)  # a vector's: all second moments
        self.momentum = torch.zeros(shape, dtype=dtype)

    def moved(self, gradient, rate, weights):
        """What a step subtracts from the weights."""
        self.step += 1
        decay = 1 - self.step ** -self.config.get("decay_rate", 0.8)
        squares = gradient**2 + self.config["epsilon"]
        if gradient.dim() == 2:
            self.rows = decay * self.rows + (1 - decay) * squares.sum(1)
            self.columns = decay * self.columns + (1 - decay) * squares.sum(0)
            moments = torch.outer(self.rows, self.columns) / self.rows.sum()
        else:
            moments = self.columns = decay * self.columns + (1 - decay) * squares
        update = gradient / torch.sqrt(moments)
        update = update / max(1.0, rms(update) / self.config.get("clip_threshold", 1.0))
        moved = rate * (max(1e-3, rms(weights)) if self.config.get("scale_parameter", True) else 1.0) * update
        if self.config.get("beta1", 0.0) > 0:
            beta1 = self.config["beta1"]
            moved = self.momentum = beta1 * self.momentum + (1 - beta1) * moved
        return moved


def rms(tensor):
    return math.sqrt((tensor**2).mean().item())
