"""longstride.scan next to flash-linear-attention (the package fla): cases of `run.py op`, tensors (batch, n, heads, size).

Decays and beta are drawn as trained layers have them: a state forgets half of what it holds within 10 to 1,000 positions.
"""
import torch
import torch.nn.functional as F

import longstride


def _tensors(n, key, value, decay, beta, positive):
    """q, k, v, and decay or beta where there is one, by name."""
    like = dict(device="cuda", dtype=torch.bfloat16)
    q, k = (torch.randn(1, n, 8, key, **like) for _ in range(2))
    out = {"q": q / key**0.5, "k": F.normalize(k, dim=-1), "v": torch.randn(1, n, 8, value, **like)}
    if positive:
        out.update({name: (out[name] * 4).exp() / key for name in "qk"})
    if decay:
        sizes = (1, n, 8, key) if decay == "channel" else (1, n, 8)
        out["decay"] = -torch.exp(torch.empty(sizes, device="cuda").uniform_(-7, -2.5))
    if beta:
        out["beta"] = torch.rand(1, n, 8, device="cuda")
    return out


def _ours(names, **arguments):
    def run(*tensors):
        given = {name: x.transpose(1, 2) for name, x in zip(names, tensors)}
        return longstride.scan(**given, **arguments).transpose(1, 2)

    return run


def _simple_gla():
    from fla.ops.simple_gla import chunk_simple_gla

    return lambda q, k, v, decay: chunk_simple_gla(q, k, v, g=decay, scale=1.0)[0]


def _gla():
    from fla.ops.gla import chunk_gla

    return lambda q, k, v, decay: chunk_gla(q, k, v, decay, scale=1.0)[0]


def _gated_delta():
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return lambda q, k, v, decay, beta: chunk_gated_delta_rule(q, k, v, decay, beta, scale=1.0)[0]


def _linear():
    from fla.ops.linear_attn import chunk_linear_attn

    return lambda q, k, v: chunk_linear_attn(q, k, v, scale=1.0, normalize=True)[0]


def cases(n=65536):
    """Name, tensors, our function and the peers' makers."""
    for name, key, value, arguments, made, peer in (
            ("SSD", 64, 64, {"form": "gated"}, ("head", False), _simple_gla),
            ("SSD", 128, 64, {"form": "gated"}, ("head", False), _simple_gla),
            ("gated linear attention", 64, 64, {"form": "gated"}, ("channel", False), _gla),
            ("gated delta", 64, 64, {"form": "delta"}, ("head", True), _gated_delta),
            ("gated delta", 128, 128, {"form": "delta"}, ("head", True), _gated_delta),
            ("sums, normalised", 256, 64, {"normalise": True}, ("", False), _linear)):
        tensors = _tensors(n, key, value, *made, positive="normalise" in arguments)
        yield f"{name} {key} x {value}", tensors.values(), _ours(tensors, **arguments), {"fla": peer}
