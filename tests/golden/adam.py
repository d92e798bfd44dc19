"""Training as docs/develop/numerics.md defines it: an optimizer with decoupled weight decay, a schedule, clipping,
average."""
import math

import torch

from adafactor import Adafactor
from adagrad import Adagrad
from muon import is_hidden, orthogonalised
from philox import dropout


def learning_rate(config, step):
    """At the 0-based step."""
    ramp = min(1.0, (step + 1) / config["warmup"]) if config["warmup"] > 0 else 1.0
    if config.get("schedule") == "reciprocal_sqrt":
        begin = config["decay_from"]
        return config["lr"] * ramp * math.sqrt(begin / max(step + 1, begin))
    return config["lr"] * ramp * 0.5 * (1 + math.cos(math.pi * step / config["steps"]))


class Separate:
    """Adagrad or Adafactor of a parameter: each of the matrices stacked in it has a state of its own."""

    def __init__(self, weights, stacked, config):
        self.stacked = stacked
        kind = Adagrad if config["optimizer"] == "adagrad" else Adafactor
        self.parts = [kind(part.shape, part.dtype, config) for part in weights.split(stacked)]

    def moved(self, gradient, rate, weights):
        parts = zip(self.parts, gradient.split(self.stacked), weights.split(self.stacked))
        return torch.cat([p.moved(g, rate) if isinstance(p, Adagrad) else p.moved(g, rate, w) for p, g, w in parts])


def train(model, parameters, batches, config):
    """One step per batch. Returns loss, lr and grad_norm of every step, the weights, and their average if there is one."""
    beta1, beta2, epsilon = config.get("beta1", 0.9), config.get("beta2", 0.999), config.get("epsilon", 1e-8)
    first = {name: torch.zeros_like(p) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p) for name, p in parameters.items()}
    average = {name: p.detach().clone() for name, p in parameters.items()} if config.get("ema", 0) > 0 else None
    separate = {}
    if config.get("optimizer", "adam") in ("adagrad", "adafactor"):
        for name, w in parameters.items():
            stacked = model.stacked(name) if is_hidden(name) else [w.shape[0]]
            separate[name] = Separate(w.detach(), stacked, config)
    steps = []
    for step, tokens in enumerate(batches):
        keep = dropout(model.model, config["seed"], step)
        model.key = (config["seed"], step * tokens.shape[0])
        loss = model.losses(parameters, tokens, keep).mean()
        gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values()))))
        norm = math.sqrt(sum((g.double() ** 2).sum().item() for g in gradients.values()))
        scale = config["clip"] / norm if 0 < config["clip"] < norm else 1.0
        rate = learning_rate(config, step)
        with torch.no_grad():
            for name, w in parameters.items():
                g = gradients[name] * scale
                decay = config["weight_decay"] if w.dim() >= 2 else 0.0
                if name in separate:
                    update = separate[name].moved(g, rate, w) / rate
                elif config.get("optimizer", "adam") == "muon" and is_hidden(name):
                    first[name] = first[name] + 0.05 * (g - first[name])
                    update = orthogonalised(g + 0.95 * (first[name] - g), model.stacked(name))
                else:
                    first[name] = beta1 * first[name] + (1 - beta1) * g
                    second[name] = beta2 * second[name] + (1 - beta2) * g * g
                    m, v = first[name] / (1 - beta1 ** (step + 1)), second[name] / (1 - beta2 ** (step + 1))
                    update = m / (torch.sqrt(v) + epsilon)
                w -= rate * (update + decay * w)
                if average:
                    keeps = min(config["ema"], (2 + step) / (11 + step))
                    average[name] = keeps * average[name] + (1 - keeps) * w
        steps.append({"loss": loss.item(), "lr": rate, "grad_norm": norm})
    return steps, parameters, average
