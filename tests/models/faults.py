"""Models and factories that break what is built around them."""

# mypy: ignore-errors
from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]

constant = 3


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_touchy():
            self.act()
        return self.fc(x)

    def is_touchy(self) -> bool:
        """Whether this is the call to fail in: torch.jit.trace's own, and no other exporter's."""
        return torch.jit.is_tracing() and not torch.onnx.is_in_onnx_export()

    def act(self) -> None:
        """Do what the model is here for."""


def _with(module: type[_Layer]) -> Built:
    torch.manual_seed(0)
    return module(), {"x": torch.randn(2, 4)}


def right() -> Built:
    """Nothing is wrong with it."""
    return _with(_Layer)


class _Crashes(_Layer):
    def act(self) -> None:
        ctypes.string_at(0)


def crashes_in_trace() -> Built:
    """Native code ends the process while torch.jit traces."""
    return _with(_Crashes)


class _CrashesInExport(_Crashes):
    def is_touchy(self) -> bool:
        return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()


def crashes_in_export() -> Built:
    """Native code ends the process while either exporter of ONNX is at work."""
    return _with(_CrashesInExport)


class _Eats(_Layer):
    def act(self) -> None:
        self.eaten = [bytearray(50_000_000) for _ in range(100_000)]


def eats_memory() -> Built:
    """It takes all there is."""
    return _with(_Eats)


class _Hangs(_Layer):
    def act(self) -> None:
        time.sleep(600)


def hangs_in_trace() -> Built:
    """It never ends."""
    return _with(_Hangs)


class _HangsAlways(_Hangs):
    def is_touchy(self) -> bool:
        return True


def hangs() -> Built:
    """The source itself never ends."""
    return _with(_HangsAlways)


class _Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(512, 2048)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


def large() -> Built:
    """Four megabytes of weights."""
    torch.manual_seed(0)
    return _Large(), {"x": torch.randn(2, 512)}


def changes() -> Built:
    """Other weights at every call."""
    torch.seed()
    return nn.Linear(4, 2), {"input": torch.randn(2, 4)}


def raises() -> Built:
    """It can't be made."""
    raise ValueError("no weights in the bucket")


def leaves() -> Built:
    """It takes itself for the main program."""
    sys.exit(5)


def ends() -> Built:
    """It takes the process along."""
    os._exit(7)


def wants(path: str) -> Any:
    """It wants an argument."""
    return path


def number() -> int:
    """It makes no model."""
    return 3


def wide_rows() -> Built:
    """Samples of a megabyte each."""
    return nn.Tanh(), {"input": torch.randn(2, 40_000)}
