"""Models that return something other than one plain tensor."""

# mypy: ignore-errors
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]


class _Returns(nn.Module):
    """Applies a layer and returns whatever `wrap` makes of the result."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.fc(x))


def _returning(wrap: Any) -> Built:
    torch.manual_seed(0)
    return _Returns(wrap), {"x": torch.randn(2, 4)}


@dataclass
class _Data:
    logits: torch.Tensor
    parts: tuple[torch.Tensor, ...]
    loss: torch.Tensor | None = None


class _Named(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class _Opaque:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


def dataclass_output() -> Built:
    """Names come from the fields."""
    return _returning(lambda h: _Data(h, (h + 1, h + 2)))


def namedtuple_output() -> Built:
    """Names come from the fields here too."""
    return _returning(lambda h: _Named(h, h * 2))


def deep_output() -> Built:
    """Dicts in lists in tuples."""
    return _returning(lambda h: ({"a": [h, {"b": -h}]}, h + 1))


def numbered_keys() -> Built:
    """Keys that are no text."""
    return _returning(lambda h: {0: h, 1: h + 1})


def awkward_keys() -> Built:
    """Keys that are no identifiers."""
    return _returning(lambda h: {"class scores": h, "a/b.c": h + 1})


def named_like_the_input() -> Built:
    """An output that has the input's name."""
    return _returning(lambda h: {"x": h, "y": h + 1})


def colliding_keys() -> Built:
    """Two key paths that become one name."""
    return _returning(lambda h: {"a_b": h, "a": {"b": h + 1}})


def number_beside() -> Built:
    """A Python number and a text beside a tensor."""
    return _returning(lambda h: {"h": h, "temperature": 0.7, "kind": "softmax"})


def nothing_at_all() -> Built:
    """An empty tuple."""
    return _returning(lambda h: ())  # noqa: ARG005


def no_tensor() -> Built:
    """Only a number."""
    return _returning(lambda h: 3.0)  # noqa: ARG005


def opaque_object() -> Built:
    """An object nobody can look into."""
    return _returning(_Opaque)


def complex_output() -> Built:
    """Complex numbers."""
    return _returning(lambda h: torch.complex(h, h))


def sparse_output() -> Built:
    """A sparse tensor."""
    return _returning(lambda h: h.relu().to_sparse())


def nan_output() -> Built:
    """NaN and infinities where the source has them are right."""
    return _returning(lambda h: (h / (h > 0), (h - h) / (h.relu())))


def infinite_mask() -> Built:
    """Scores of which many are minus infinity."""
    return _returning(lambda h: h.masked_fill(h < 0, float("-inf")))


def whole_numbers() -> Built:
    """Outputs that must be exact."""
    return _returning(lambda h: (h.argmax(-1), h.argsort(-1), h > 0, (h * 4).to(torch.int32)))


def small_whole_numbers() -> Built:
    """int8 and uint8, as quantised models return them."""
    return _returning(lambda h: ((h * 20).clamp(-100, 100).to(torch.int8), h.relu().byte()))


def sorted_pair() -> Built:
    """What torch.sort returns is no plain tuple."""
    return _returning(lambda h: h.sort(-1))


def empty_output() -> Built:
    """A tensor without elements."""
    return _returning(lambda h: (h, h[:, :0]))


def not_contiguous() -> Built:
    """Views: transposed and expanded."""
    return _returning(lambda h: (h.unsqueeze(1).expand(-1, 2, -1), h.unsqueeze(2).mT))


def half_output() -> Built:
    """float16 out of a float32 model."""
    return _returning(lambda h: h.half())


def double_output() -> Built:
    """float64 out of a float32 model."""
    return _returning(lambda h: h.double() * 2)


def many_outputs() -> Built:
    """More than ten, so that the order of their names is not that of the alphabet."""
    return _returning(lambda h: tuple(h * n for n in range(1, 13)))


class _InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        x.mul_(2)
        return x, y


def changes_its_input() -> Built:
    """The input is overwritten, and returned."""
    return _InPlace(), {"x": torch.randn(2, 4)}
