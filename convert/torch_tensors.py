"""Torch's tensors as NumPy's arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UsageProblem
from ..spec import DTYPES
from .base import Array

FINGERPRINT_BLOCKS, FINGERPRINT_BLOCK = 16, 256
"""How many blocks of how many values of each tensor go into the fingerprint: in few pages, since
reading a page of a mapped file takes memory."""


def some_bytes(tensor: Any) -> bytes:
    """Return the bytes of some of a tensor's values, spread over all of it."""
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    tensor = tensor.int_repr() if tensor.is_quantized else tensor
    values = (tensor if tensor.layout == torch.strided else tensor.to_dense()).reshape(-1)
    starts = range(0, len(values), max(1, len(values) // FINGERPRINT_BLOCKS))
    blocks = [values[start : start + FINGERPRINT_BLOCK] for start in starts]
    part = torch.cat(blocks) if blocks else values
    array: Array = part.contiguous().view(torch.uint8).numpy()
    return array.tobytes()


def dtype_name(value: Any) -> str:
    """Return the dtype of a tensor as tconv writes it; empty for what is none."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def to_tensor(array: Array, device: str = "cpu") -> Any:
    """Return a torch tensor with the array's values; it never shares memory with it."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(array.view(np.int16))).view(torch.bfloat16).to(device)
    return torch.from_numpy(np.array(array)).to(device)


def to_array(tensor: Any, what: str = "A tensor") -> Array:
    """Return a NumPy array with the tensor's values.

    Raises:
        UsageProblem: `what` is sparse, complex or quantised: no server could hold it.
    """
    import torch

    dtype = dtype_name(tensor)
    if dtype not in DTYPES or tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise UsageProblem(
            f"{what} is a {kind} tensor of {dtype}, which no target can hold.",
            remedy="Use dense tensors of real numbers at the ends of the model.",
        )
    tensor = tensor.detach().cpu().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        array: Array = tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    return tensor.numpy()  # type: ignore[no-any-return]
