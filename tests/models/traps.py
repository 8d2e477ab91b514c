"""Models of a few lines, each with a trap that people have met; `test_cases.py` says what follows.

Every factory returns `(module, examples)`.
"""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]


def plain_mlp() -> Built:
    """No trap."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), {
        "input": torch.randn(2, 8)
    }


class _Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1


def value_branch() -> Built:
    """A trace keeps the branch that its example took."""
    return _Branch(), {"x": torch.rand(2, 3) + 0.1}


class _CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(int(x.shape[0]), 6)
        c = torch.zeros(int(x.shape[0]), 6)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return h


def baked_batch() -> Built:
    """`int(x.shape[0])` makes the example's batch a constant, which broadcasts against batch 1."""
    torch.manual_seed(0)
    return _CellLoop(), {"x": torch.randn(3, 5, 4)}


class _BatchOneSpecial(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 1 else x * 3


def specialised_on_one() -> Built:
    """Batch 1 is computed differently from every other."""
    return _BatchOneSpecial(), {"x": torch.randn(1, 8)}


class _RowCoupled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) @ self.w


def rows_influence_each_other() -> Built:
    """Right at every size, wrong once a server puts two clients into one batch."""
    return _RowCoupled(), {"x": torch.randn(3, 4)}


class _Squeezes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).squeeze()


def squeeze_loses_batch() -> Built:
    """At batch 1, and only there, the batch axis goes too."""
    torch.manual_seed(0)
    return _Squeezes(), {"x": torch.randn(3, 4)}


class _ScalarSide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.fc(x), x.mean()


def unbatched_side_output() -> Built:
    """One number for the whole batch beside an output with rows."""
    torch.manual_seed(0)
    return _ScalarSide(), {"x": torch.randn(2, 4)}


class _NoBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.conv(image.unsqueeze(0))[0]


def no_batch_axis() -> Built:
    """The first axis is the colour."""
    torch.manual_seed(0)
    return _NoBatch(), {"image": torch.randn(3, 16, 24)}


class _UnusedInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(50, 8)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
    ) -> torch.Tensor:
        return self.emb(input_ids) * attention_mask.unsqueeze(-1)


def unused_input() -> Built:
    """Exporters drop an input that nothing reads, and not all do."""
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (2, 6))
    return _UnusedInput(), {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }


class _DictOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"scores": self.a(x), "boxes": [self.b(x), -self.b(x)], "loss": None}


def nested_output() -> Built:
    """A dict that holds a tensor, a list, and nothing."""
    torch.manual_seed(0)
    return _DictOut(), {"x": torch.randn(2, 4)}


class _FunctionalDropout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5)


def live_dropout() -> Built:
    """`F.dropout` does not know of eval()."""
    return _FunctionalDropout(), {"x": torch.ones(2, 64)}


class _PassThrough(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ids, self.fc(x)


def pass_through_output() -> Built:
    """An output that is an input."""
    torch.manual_seed(0)
    return _PassThrough(), {"ids": torch.arange(2), "x": torch.randn(2, 4)}


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.fc(x)
        return h, h


def same_output_twice() -> Built:
    """One tensor under two names."""
    torch.manual_seed(0)
    return _Twice(), {"x": torch.randn(2, 4)}


class _KeywordOnly(nn.Module):
    def forward(
        self,
        query: torch.Tensor,
        *,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float = 0.5,
    ) -> torch.Tensor:
        return (query - 2 * key) * scale + 3 * value


def keyword_only_inputs() -> Built:
    """Inputs of one shape, given in another order than the signature's."""
    return _KeywordOnly(), {
        "value": torch.randn(2, 4),
        "key": torch.randn(2, 4),
        "query": torch.randn(2, 4),
    }


class _MaskedSoftmax(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + (1 - mask) * -1e12, dim=-1)


def mask_constant() -> Built:
    """A constant that float32 holds and float16 does not, and a row that is masked whole."""
    mask = torch.ones(3, 8)
    mask[1] = 0
    return _MaskedSoftmax(), {"x": torch.randn(3, 8), "mask": mask}


class _Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(100, 16)
        self.rnn = nn.GRU(16, 8, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.rnn(self.emb(tokens))[0]
        return output


def dynamic_sequence() -> Built:
    """Two axes vary, and the ids end at 100."""
    torch.manual_seed(0)
    return _Sequence(), {"tokens": torch.randint(0, 100, (2, 16))}


class _TiesTopK(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, index = torch.topk(x.round(), 3, dim=-1)
        return scores, index


def topk_ties() -> Built:
    """Which of two equal scores comes first is nobody's promise."""
    return _TiesTopK(), {"x": torch.randn(2, 32) * 2}


class _LargeValues(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 1e4, x * 1e-6


def very_different_scales() -> Built:
    """One absolute tolerance can't be right for both outputs."""
    return _LargeValues(), {"x": torch.randn(2, 16)}


class _Bfloat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


def bfloat16_io() -> Built:
    """A dtype that NumPy does not have."""
    torch.manual_seed(0)
    return _Bfloat(), {"x": torch.randn(2, 4, dtype=torch.bfloat16)}
