#!/usr/bin/env python3
"""Draws docs/figures/random_features.svg: the error of attention by random features against their number, for rows of the
projection that are independent or orthogonal (Choromanski et al. 2021, figure 4: 4,096 positions, heads of 16,
queries and keys with a deviation of 0.35).

    python3 docs/figures/random_features.py

The projections are those of `orthogonal: none|gram_schmidt|hadamard|givens`, drawn as tests/golden/scan.py does, which needs
PyTorch and NumPy. The error is the root mean square over outputs and draws, divided by that of the exact outputs.
"""
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/golden"), str(ROOT / "tests/peers")]
import plot  # noqa: E402
import torch  # noqa: E402
from scan import projection  # noqa: E402

POSITIONS, SIZE, DEVIATION, DRAWS, COUNTS = 4096, 16, 0.35, 12, (16, 32, 64, 128, 256, 512)
KINDS = {"independent": "none", "Gram-Schmidt": "gram_schmidt", "Hadamard": "hadamard", "Givens": "givens"}


def positive(x, rows):
    """Up to a factor per query, and one of all keys: the quotient cancels them."""
    exponents = SIZE**-0.25 * x @ rows.T
    return torch.exp(exponents - SIZE**-0.5 / 2 * (x**2).sum(-1, keepdim=True))


def main():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, POSITIONS, SIZE, dtype=torch.float64) * torch.tensor([DEVIATION, DEVIATION, 1.0])[:, None, None]
    right = torch.softmax(q @ k.T / math.sqrt(SIZE), -1) @ v

    def error(count, kind):
        squares = 0
        for draw in range(DRAWS):
            rows = projection(0, count, SIZE, kind, draw)
            phi_q, phi_k = positive(q, rows), positive(k, rows)
            found = phi_q @ (phi_k.T @ v) / (phi_q @ phi_k.sum(0))[:, None]
            squares += ((found - right) ** 2).mean().item() / DRAWS
        return math.sqrt(squares / (right**2).mean().item())

    exponents = [int(math.log2(count)) for count in COUNTS]
    errors = {name: [error(count, kind) for count in COUNTS] for name, kind in KINDS.items()}
    first = errors["independent"][0]
    errors["1 / sqrt(features)"] = [first * math.sqrt(COUNTS[0] / count) for count in COUNTS]
    for name, values in errors.items():
        print(f"{name:20}", *(f"{value:.3f}" for value in values))
    series = [(name, exponents, values, i, i == len(KINDS)) for i, (name, values) in enumerate(errors.items())]
    plot.write(pathlib.Path(__file__).parent / "random_features.svg",
               [plot.panel("relative error of attention", "log2 of the number of features", series, log=True)], columns=1)


if __name__ == "__main__":
    main()
