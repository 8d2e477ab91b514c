"""More models whose first axis is no plain batch, or whose code takes its size for a constant."""

# mypy: ignore-errors
from __future__ import annotations

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]


class _Function(nn.Module):
    """A module of one function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _rows(function, rows: int = 3, columns: int = 4) -> Built:
    torch.manual_seed(0)
    return _Function(function), {"x": torch.randn(rows, columns)}


def stacked_rows() -> Built:
    """A Python loop over the rows: a trace unrolls it."""
    return _rows(lambda x: torch.stack([row * 2 + row.max() for row in x]))


def zeros_of_length() -> Built:
    """`len(x)` is a Python int."""
    return _rows(lambda x: torch.cat([torch.zeros(len(x), 1), x], dim=1))


def expanded_token() -> Built:
    """A class token that is expanded to the batch, as vision transformers do: it must work."""
    return _rows(lambda x: torch.cat([torch.ones(1, 2).expand(x.shape[0], -1), x], dim=1))


def repeated_by_number() -> Built:
    """The batch size as a float in the arithmetic."""
    return _rows(lambda x: x * float(x.shape[0]))


def hard_coded_size() -> Built:
    """The code says 3: no other size can be run."""
    return _rows(lambda x: x.reshape(3, 2, 2).sum(1))


def through_numpy() -> Built:
    """What leaves torch comes back as a constant."""
    return _rows(lambda x: x + torch.from_numpy(x.detach().cpu().numpy().copy()).tanh())


def through_item() -> Built:
    """A number taken out of the first column is a constant from then on."""
    return _rows(lambda x: torch.stack([row * row.max().item() for row in x]))


def even_or_odd() -> Built:
    """The parity of the batch decides."""
    return _rows(lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3)


def only_large_differs() -> Built:
    """A shortcut for small batches, which is right only there."""
    return _rows(lambda x: x * 2 if x.shape[0] < 6 else x * 2 + 1)


def running_sum() -> Built:
    """A row knows of those before it."""
    return _rows(lambda x: x.cumsum(0))


def softmax_of_rows() -> Built:
    """Softmax along the wrong axis."""
    return _rows(lambda x: x.softmax(0))


def numbered_rows() -> Built:
    """A row's place in the batch is part of the result."""
    return _rows(lambda x: x + torch.arange(x.shape[0]).unsqueeze(1))


def live_batch_norm() -> Built:
    """The statistics are those of the batch."""
    return _rows(lambda x: nn.functional.batch_norm(x, None, None, training=True))


def reversed_rows() -> Built:
    """Every row is right, but in another place."""
    return _rows(lambda x: x.flip(0))


def transposed() -> Built:
    """The batch comes out as the second axis."""
    return _rows(lambda x: x.t() * 2)


def folded() -> Built:
    """The batch comes out multiplied."""
    return _rows(lambda x: x.reshape(-1, 2) * 2)


def constant_output() -> Built:
    """An output that does not depend on the batch, and whose size is that of the largest."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classes = nn.Parameter(torch.arange(8.0))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, self.classes * 1

    return Module(), {"x": torch.randn(3, 4)}


def hidden_state() -> Built:
    """The state of an LSTM has the batch in its second axis."""
    torch.manual_seed(0)

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            output, (hidden, _) = self.rnn(x)
            return output, hidden

    return Module(), {"x": torch.randn(3, 6, 4)}


def only_a_sum() -> Built:
    """One number for the whole batch, and nothing else."""
    return _rows(lambda x: x.sum())


def selected_rows() -> Built:
    """How many rows come out depends on the values."""
    return _rows(lambda x: x[x[:, 0] > 0])


def short_or_long() -> Built:
    """The length of the sequence decides: `--input 'x:float32[batch,seq=2..40]'`."""
    return _rows(lambda x: x * 2 if x.shape[1] > 10 else x * 3)
