"""One network, and what a change may make of it."""

from __future__ import annotations

import torch
from torch import nn


def _network(layers: int, width: int = 64) -> tuple[nn.Module, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts), torch.randn(3, width, generator=generator)


def accepted() -> tuple[nn.Module, torch.Tensor]:
    return _network(8)


def twice_as_deep() -> tuple[nn.Module, torch.Tensor]:
    return _network(16)


def other_weights() -> tuple[nn.Module, torch.Tensor]:
    network, example = _network(8)
    with torch.no_grad():
        network[0].weight.mul_(1.01)
    return network, example


def other_contract() -> tuple[nn.Module, torch.Tensor]:
    return _network(8, width=60)
