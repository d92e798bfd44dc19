"""Optimizers whose steps can be captured: learning rates are tensors, and nothing is read back."""
import torch


class Adam:
    """Fused AdamW behind a limit on the norm of all gradients. Weights of one dimension do not decay."""

    def __init__(self, model, rate, clip, decay, beta2=0.999, parameters=None, epsilon=1e-8):
        self.parameters, self.rate, self.clip = list(parameters or model.parameters()), rate, clip
        groups = [{"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": decay},
                  {"params": [p for p in self.parameters if p.dim() == 1], "weight_decay": 0.0}]
        on_gpu = rate.device.type == "cuda"
        self.adam = torch.optim.AdamW(groups, lr=rate, betas=(0.9, beta2), eps=epsilon, fused=on_gpu, capturable=on_gpu)
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
        if self.clip > 0:
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


def newton_schulz(update):
    """Moves the singular values of matrices (..., rows, columns) towards 1, in bf16 on a GPU."""
    x = update.bfloat16() if update.is_cuda else update
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-6)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    return x


class Muon:
    """Muon for the blocks' matrices, all of one shape at once, and Adam at a tenth of the rate for the rest. Of what is
    stacked in one weight (queries, keys and values) each matrix counts by itself; wide ones are turned."""

    def __init__(self, model, rate, clip, decay, beta2, momentum=0.95):
        self.rate, self.clip, self.decay, self.momentum = rate, clip, decay, momentum
        self.matrices = [p for block in model.blocks for p in block.parameters() if p.dim() > 1]
        mine = {id(p) for p in self.matrices}
        self.all = list(model.parameters())
        self.adam_rate = torch.zeros_like(rate)
        self.adam = Adam(model, self.adam_rate, 0, decay, beta2, [p for p in self.all if id(p) not in mine])
        self.groups = {}  # by the shape of their parts
        for p in self.matrices:
            for part in self.parts(p, p.detach()):
                self.groups[part.shape] = self.groups.get(part.shape, 0) + 1
        self.buffers = {shape: torch.zeros(number, *shape, device=rate.device) for shape, number in self.groups.items()}
        self.move = torch.compile(self.moved, dynamic=False) if rate.device.type == "cuda" else self.moved
        for buffer in self.buffers.values():  # compiles, which must not happen while a step is captured
            self.move(buffer, torch.zeros_like(buffer))

    @staticmethod
    def parts(p, tensor):
        """Matrices with no more rows than columns."""
        rows, columns = p.shape
        if rows > columns and rows == 3 * columns:
            return list(tensor.chunk(3))
        return [tensor.mT if rows > columns else tensor]

    def moved(self, buffer, gradients):
        buffer.lerp_(gradients, 1 - self.momentum)
        return newton_schulz(gradients.lerp(buffer, self.momentum)).float()

    def forget(self):
        for p in self.all:
            p.grad = None

    def state(self):
        return [*self.adam.state(), *self.buffers.values()]

    @torch.no_grad()
    def step(self):
        torch.nn.utils.clip_grad_norm_(self.all, self.clip)
        gradients = {shape: [] for shape in self.groups}
        for p in self.matrices:
            for part in self.parts(p, p.grad):
                gradients[part.shape].append(part)
        moved = {shape: iter(self.move(self.buffers[shape], torch.stack(parts))) for shape, parts in gradients.items()}
        updates = []
        for p in self.matrices:
            parts = [next(moved[part.shape]) for part in self.parts(p, p.detach())]
            whole = torch.cat(parts) if len(parts) > 1 else parts[0]
            updates.append(0.2 * max(parts[0].shape) ** 0.5 * (whole if whole.shape == p.shape else whole.mT))
        torch._foreach_mul_(self.matrices, 1 - self.rate * self.decay)
        torch._foreach_mul_(updates, self.rate)
        torch._foreach_sub_(self.matrices, updates)
        self.adam_rate.copy_(self.rate * 0.1)
        self.adam.step()
