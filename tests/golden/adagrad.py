"""Adagrad's update of one parameter by torch.optim.Adagrad, with the learning rate of a tensor lowered as in the authors'
code of Adaptive Attention Span when the norm of its gradient is above a limit."""
import torch


class Adagrad:
    """One tensor, which keeps its own state. Matrices stacked in a parameter are tensors of their own."""

    def __init__(self, shape, dtype, config):
        self.weights = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        self.optimizer = torch.optim.Adagrad([self.weights], eps=config["epsilon"])
        self.limit = config.get("tensor_clip", 0.0)

    def moved(self, gradient, rate):
        """What a step subtracts from the weights."""
        norm = torch.linalg.norm(gradient).item()
        self.optimizer.param_groups[0]["lr"] = rate * self.limit / norm if 0 < self.limit < norm else rate
        self.weights.data.zero_()
        self.weights.grad = gradient
        self.optimizer.step()
        return -self.weights.detach()
