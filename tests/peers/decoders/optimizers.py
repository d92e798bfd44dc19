"""Optimizers whose steps can be captured: learning rates are tensors, and nothing is read back."""
import torch


class Adam:
    """Fused AdamW behind a limit on the norm of all gradients. Weights of one dimension do not decay."""

    def __init__(self, model, rate, clip, decay):
        self.parameters, self.rate, self.clip = list(model.parameters()), rate, clip
        groups = [{"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": decay},
                  {"params": [p for p in self.parameters if p.dim() == 1], "weight_decay": 0.0}]
        on_gpu = rate.device.type == "cuda"
        self.adam = torch.optim.AdamW(groups, lr=rate, fused=on_gpu, capturable=on_gpu)
        for group in self.adam.param_groups:
            group["lr"] = rate
        for p in self.parameters:  # states must exist before the step is captured
            p.grad = torch.zeros_like(p)
        self.adam.step()
        for tensor in self.state():
            tensor.zero_()
        self.forget()

    def forget(self):
        self.adam.zero_grad(set_to_none=True)

    def state(self):
        return [t for p in self.parameters for t in self.adam.state[p].values()]

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.adam.step()


class Adagrad:
    """Adagrad with a limit on the norm of all gradients, and one on the learning rate of each matrix or vector, as in the
    authors' code of Adaptive-Span. `after` runs behind every update."""

    def __init__(self, model, rate, clip, tensor_clip, after=lambda: None, epsilon=1e-10):
        self.named, self.rate, self.clip, self.tensor_clip = dict(model.named_parameters()), rate, clip, tensor_clip
        self.after, self.epsilon = after, epsilon
        self.sums = [torch.zeros_like(part) for name, p in self.named.items() for part in self.parts(name, p.detach())]

    def forget(self):
        for p in self.named.values():
            p.grad = None

    def state(self):
        return self.sums

    @staticmethod
    def parts(name, tensor):
        """Keys and values are one product here, but two matrices."""
        return tensor.chunk(2) if name.endswith("kv.weight") else [tensor]

    @torch.no_grad()
    def step(self):
        torch.nn.utils.clip_grad_norm_(list(self.named.values()), self.clip)
        weights = [part for name, p in self.named.items() for part in self.parts(name, p.detach())]
        gradients = [part for name, p in self.named.items() for part in self.parts(name, p.grad)]
        norms = torch.stack(torch._foreach_norm(gradients))
        rates = self.rate * torch.clamp(self.tensor_clip / (norms + 1e-10), max=1.0)
        torch._foreach_addcmul_(self.sums, gradients, gradients)
        deviations = torch._foreach_sqrt(self.sums)
        torch._foreach_add_(deviations, self.epsilon)
        updates = torch._foreach_div(gradients, deviations)
        for weight, update, rate in zip(weights, updates, rates.unbind()):
            weight.sub_(update * rate)
        self.after()
