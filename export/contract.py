"""What a client may rely on, and what a new version would change of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import TconvError

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def breaking_changes(old: ModelConfig, new: ModelConfig) -> list[str]:
    """Return what would break a client of `old`: names, dtypes, shapes on the wire, the batch."""
    inputs, wanted = _tensors(old, "input"), _tensors(new, "input")
    given, answers = _tensors(old, "output"), _tensors(new, "output")
    found = [f"input {name}: new" for name in wanted.keys() - inputs.keys()]
    found += _differences("input", inputs, wanted, wider_is_fine=True)
    found += _differences("output", given, answers, wider_is_fine=False)
    if new.max_batch_size < old.max_batch_size:
        found.append(f"max_batch_size: {old.max_batch_size} -> {new.max_batch_size}")
    return sorted(found)


def check_contract(old: ModelConfig, new: ModelConfig, version: int | None) -> None:
    """Refuse a change that would break clients.

    Raises:
        TconvError: names every change.
    """
    if changes := breaking_changes(old, new):
        against = f"version {version}" if version else "what is there"
        raise TconvError(
            f"Clients of {against} would break: {'; '.join(changes)}.",
            remedy="Publish it under another --name, or add --allow-contract-change.",
        )


def _tensors(config: ModelConfig, field: str) -> Tensors:
    from tritonclient.grpc import model_config_pb2

    batch = (-1,) if config.max_batch_size > 0 else ()
    tensors: Any = getattr(config, field)
    return {
        t.name: (
            model_config_pb2.DataType.Name(t.data_type).removeprefix("TYPE_"),
            (*batch, *t.dims),
        )
        for t in tensors
    }


def _differences(field: str, old: Tensors, new: Tensors, *, wider_is_fine: bool) -> list[str]:
    found = []
    for name, (dtype, dims) in old.items():
        if name not in new:
            found.append(f"{field} {name}: gone")
            continue
        new_dtype, new_dims = new[name]
        if new_dtype != dtype:
            found.append(f"{field} {name}: {dtype} -> {new_dtype}")
        if not _fits(dims, new_dims, wider_is_fine):
            found.append(f"{field} {name}: {list(dims)} -> {list(new_dims)}")
    return found


def _fits(old: tuple[int, ...], new: tuple[int, ...], wider_is_fine: bool) -> bool:
    if len(old) != len(new):
        return False
    return all(n == o or (wider_is_fine and n == -1) for o, n in zip(old, new, strict=True))
