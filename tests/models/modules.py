"""Modules that are special themselves: their state, their kind, or where their weights are."""

# mypy: ignore-errors
from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

Built = tuple[Any, Any]


class _Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2


def counts_calls() -> Built:
    """A buffer changes with every call, and no output shows it."""
    return _Counts(), {"x": torch.randn(2, 4)}


class _Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state + x.sum(0)
        return x + self.state


def remembers() -> Built:
    """What was asked before changes the answer."""
    return _Remembers(), {"x": torch.randn(2, 4)}


class _Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, flip: bool = False) -> torch.Tensor:
        if flip:
            x = -x
        return self.fc(x)


def script_module() -> Built:
    """A module that is scripted already."""
    torch.manual_seed(0)
    return torch.jit.script(_Scripted()), {"x": torch.randn(2, 4)}


def traced_module() -> Built:
    """A module that is traced already."""
    torch.manual_seed(0)
    example = torch.randn(2, 4)
    return torch.jit.trace(nn.Linear(4, 2), example), {"input": example}


def compiled_module() -> Built:
    """A module behind torch.compile."""
    torch.manual_seed(0)
    return torch.compile(nn.Linear(4, 2)), {"input": torch.randn(2, 4)}


def on_meta_device() -> Built:
    """Weights that are not there."""
    with torch.device("meta"):
        return nn.Linear(4, 2), {"input": torch.zeros(2, 4, device="cpu")}


def not_initialised() -> Built:
    """A lazy layer that has seen no input."""
    return nn.LazyLinear(2), {"input": torch.randn(2, 4)}


def in_training_mode() -> Built:
    """Dropout and BatchNorm, left in train()."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    return module.train(), {"input": torch.randn(3, 4)}


def weight_norm() -> Built:
    """Weights that a hook computes."""
    torch.manual_seed(0)
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), {"input": torch.randn(2, 4)}


def tied_weights() -> Built:
    """One parameter in two places."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    return module, {"input": torch.randn(2, 4)}


class _Spectrum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x).abs()


def complex_inside() -> Built:
    """Complex numbers that no end shows."""
    return _Spectrum(), {"x": torch.randn(2, 8)}


@torch.library.custom_op("tconv_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    """Return three times `x`."""
    return x * 3


@triple.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class _Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return triple(x) + 1


def custom_operator() -> Built:
    """An operator that only this file knows."""
    return _Custom(), {"x": torch.randn(2, 4)}


class _Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x) * 1e-3


def draws_little() -> Built:
    """Noise that is small, but far above rounding."""
    return _Draws(), {"x": torch.randn(2, 4)}


def keras_like() -> Any:
    """No module at all."""
    return {"layers": 3}


def half_weights_float_input() -> Built:
    """The source itself can't run."""
    return nn.Linear(4, 2).half(), {"input": torch.randn(2, 4)}


@torch.compile
def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class _CompiledInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.fc.compile()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _doubled(self.fc(x))


def compiled_inside() -> Built:
    """A part, and a function, behind torch.compile."""
    torch.manual_seed(0)
    return _CompiledInside(), {"x": torch.randn(2, 4)}


def quantised() -> Built:
    """Weights of eight bits, of which torch keeps a packed form."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.ao.quantization.quantize_dynamic(module, {nn.Linear})
    return module, {"input": torch.randn(2, 4)}
