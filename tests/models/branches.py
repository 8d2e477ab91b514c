"""More models whose code looks at values: what a trace sees is one path of many."""

# mypy: ignore-errors
from __future__ import annotations

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]


class _Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            return x.exp()
        return x.abs()


def nested_branch() -> Built:
    """The branch is in a module inside a module."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Identity(), _Gate())), {
        "input": torch.rand(2, 3)
    }


class _Loop(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.abs().max() > 1:
            x = x / 2
        return x


def value_loop() -> Built:
    """How often the loop runs depends on the values."""
    return _Loop(), {"x": torch.randn(2, 3)}


class _AnyFlag(nn.Module):
    def forward(self, x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        return x * flags.unsqueeze(1) if flags.any() else x - 5


def bool_branch() -> Built:
    """The branch looks at a bool input."""
    return _AnyFlag(), {"x": torch.randn(3, 4), "flags": torch.tensor([True, False, True])}


class _Where(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sum(1, keepdim=True) > 0, x * 2, x - 1)


def written_with_where() -> Built:
    """The same thought without a branch: it must work."""
    return _Where(), {"x": torch.rand(2, 3) + 0.1}


class _Scriptable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1


def scriptable_branch() -> Built:
    """A branch that torch.jit.script keeps."""
    return _Scriptable(), {"x": torch.rand(2, 3) + 0.1}


class _Item(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / max(x.abs().max().item(), 1e-6)


def number_taken_out() -> Built:
    """`item()` makes a number of a tensor, and a constant of the number."""
    return _Item(), {"x": torch.randn(2, 3)}


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.fc(self.norm(x)))


def blocks() -> Built:
    """Three blocks and a head, to be broken in one place."""
    torch.manual_seed(0)
    return nn.Sequential(_Block(), _Block(), _Block(), nn.Linear(8, 4)), {
        "input": torch.randn(3, 8)
    }


class _Rare(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 1e6:
            return x / 1e6
        return x + 1


def rare_branch() -> Built:
    """No sample of a sweep comes near the branch."""
    return _Rare(), {"x": torch.randn(2, 3)}


class _Checked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.isnan(x).any():
            raise ValueError("NaN")
        assert x.abs().max() < 1e9
        return x + 1


def checked_inputs() -> Built:
    """What refuses bad inputs is no branch to be proven."""
    return _Checked(), {"x": torch.randn(2, 3)}
