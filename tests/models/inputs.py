"""Models that take something other than float tensors with a batch, or take it in another way."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

Built = tuple[nn.Module, Any]


class _Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.conv(image.float() / 255)


def uint8_image() -> Built:
    """Pixels as cameras give them."""
    torch.manual_seed(0)
    return _Image(), {"image": torch.randint(0, 256, (2, 3, 8, 10), dtype=torch.uint8)}


class _Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(30, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.emb(ids)


def int32_ids() -> Built:
    """Ids as tokenizers of C++ give them."""
    torch.manual_seed(0)
    return _Lookup(), {"ids": torch.randint(0, 30, (2, 5), dtype=torch.int32)}


class _Hash(nn.Module):
    def forward(self, key: torch.Tensor) -> torch.Tensor:
        return key % 1000003


def huge_numbers() -> Built:
    """Whole numbers that float64 can't tell apart."""
    return _Hash(), {"key": torch.tensor([[2**62 + 1, 2**63 - 1], [-(2**62), 3]])}


class _Select(nn.Module):
    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(~keep, 0.0)


def bool_input() -> Built:
    """A mask of bools."""
    return _Select(), {"x": torch.randn(3, 4), "keep": torch.rand(3, 4) > 0.5}


def double_model() -> Built:
    """Weights and inputs in float64."""
    torch.manual_seed(0)
    return nn.Linear(4, 2).double(), {"input": torch.randn(2, 4, dtype=torch.float64)}


def half_model() -> Built:
    """Weights and inputs in float16."""
    torch.manual_seed(0)
    return nn.Linear(4, 2).half(), {"input": torch.randn(2, 4, dtype=torch.float16)}


class _BfloatInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(30, 8).to(torch.bfloat16)
        self.fc = nn.Linear(8, 3).to(torch.bfloat16)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.fc(self.emb(ids))
        return hidden, hidden.float().softmax(-1)


def bfloat16_inside() -> Built:
    """bfloat16 weights behind ids, and outputs of two dtypes."""
    torch.manual_seed(0)
    return _BfloatInside(), {"ids": torch.randint(0, 30, (2, 5))}


class _Scaled(nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * scale


def scalar_input() -> Built:
    """A number beside a batch."""
    return _Scaled(), {"x": torch.randn(2, 4), "scale": torch.tensor(0.5)}


def column_beside_matrix() -> Built:
    """Inputs of different rank that share the batch."""
    return _Scaled(), {"x": torch.randn(3, 1), "scale": torch.randn(3, 7)}


def two_batches() -> Built:
    """Inputs whose first axes differ: none is the batch."""

    class Module(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b.t()

    return Module(), {"a": torch.randn(2, 4), "b": torch.randn(3, 4)}


class _PositionalOnly(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, /, scale: float = 2.0) -> torch.Tensor:
        return x - y * scale


def positional_only() -> Built:
    """Arguments that have no name outside."""
    return _PositionalOnly(), {"y": torch.randn(2, 4), "x": torch.randn(2, 4)}


class _OpenEnded(nn.Module):
    def forward(self, x: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return x + sum(value * n for n, value in enumerate(more.values(), 1))


def open_ended() -> Built:
    """`**kwargs` takes any name."""
    return _OpenEnded(), {"x": torch.randn(2, 4), "a": torch.randn(2, 4), "b": torch.randn(2, 4)}


class _Variadic(nn.Module):
    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.cat(parts, dim=-1)


def variadic() -> Built:
    """`*args` gives no names at all."""
    return _Variadic(), (torch.randn(2, 4), torch.randn(2, 3))


class _Pair(nn.Module):
    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return pair[0] - pair[1]


def tuple_input() -> Built:
    """An argument that is a tuple."""
    return _Pair(), {"pair": (torch.randn(2, 4), torch.randn(2, 4))}


class _Optional(nn.Module):
    def forward(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, times: int = 2
    ) -> torch.Tensor:
        return (x if bias is None else x + bias) * times


def optional_input() -> Built:
    """What has a default and no example keeps it."""
    return _Optional(), {"x": torch.randn(2, 4)}


def number_as_example() -> Built:
    """An example that is no tensor."""
    return _Optional(), {"x": torch.randn(2, 4), "times": 3}


def example_alone() -> Built:
    """One tensor, not in a dict."""
    return nn.Tanh(), torch.randn(2, 4)


def numpy_example() -> Built:
    """Examples as NumPy arrays."""
    return nn.Tanh(), {"input": np.ones((2, 4), np.float32)}


def missing_example() -> Built:
    """An argument without default and without example."""
    return _Scaled(), {"x": torch.randn(2, 4)}


def unknown_example() -> Built:
    """An example for an argument that is not there."""
    return nn.Tanh(), {"input": torch.randn(2, 4), "mask": torch.ones(2)}


def views_as_examples() -> Built:
    """Examples that are transposed, expanded, and want a gradient."""
    return _Scaled(), {
        "x": torch.randn(4, 3).t(),
        "scale": torch.ones(1, 4, requires_grad=True).expand(3, 4),
    }


def empty_example() -> Built:
    """Examples of no rows."""
    return nn.Tanh(), {"input": torch.randn(0, 4)}


def nan_example() -> Built:
    """An example with a NaN in it."""
    example = torch.randn(2, 4)
    example[0, 0] = float("nan")
    return nn.Tanh(), {"input": example}


def complex_example() -> Built:
    """Complex numbers going in."""

    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.abs()

    return Module(), {"x": torch.randn(2, 4, dtype=torch.complex64)}
