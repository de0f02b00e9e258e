"""Writes torch_outputs.npz, the outputs of PyTorch's LocalResponseNorm: tests need no PyTorch.

Run it only to add cases: `python tests/write_torch_outputs.py`. Needs torch.
"""

from pathlib import Path

import numpy as np
import torch

PATH = Path(__file__).with_name("torch_outputs.npz")

# (size, alpha, beta, k, shape), channels on axis 1. The even sizes show why they are refused.
CASES = [
    (1, 0.7, 0.75, 2.0, (2, 5, 3)),
    (3, 0.9, 0.75, 1.0, (2, 7, 3, 4)),
    (5, 1.5, 0.75, 2.0, (3, 6, 4, 2)),
    (5, 0.8, 0.5, 0.0, (2, 8, 3)),
    (7, 2.0, 1.0, 0.5, (3, 4, 2, 5)),
    (9, 1.2, 1.3, 1.0, (1, 11, 2, 3, 4)),
    (15, 4.0, 0.75, 1.0, (2, 17, 1, 3)),
    (2, 0.9, 0.75, 1.0, (2, 7, 3, 4)),
    (4, 1.5, 0.75, 2.0, (3, 6, 4, 2)),
]


def main():
    rng = np.random.default_rng(0)
    arrays = {"torch_version": np.array(torch.__version__)}
    for number, (size, alpha, beta, k, shape) in enumerate(CASES):
        x = torch.tensor(rng.normal(scale=2.0, size=shape), requires_grad=True)
        upstream = torch.tensor(rng.normal(size=shape))
        y = torch.nn.LocalResponseNorm(size, alpha=alpha, beta=beta, k=k)(x)
        y.backward(upstream)
        arrays[f"{number}/parameters"] = np.array([size, alpha, beta, k])
        arrays[f"{number}/x"] = x.detach().numpy()
        arrays[f"{number}/upstream"] = upstream.numpy()
        arrays[f"{number}/y"] = y.detach().numpy()
        arrays[f"{number}/dx"] = x.grad.numpy()
    np.savez_compressed(PATH, **arrays)


if __name__ == "__main__":
    main()
