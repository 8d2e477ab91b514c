"""The inputs and outputs of a `config.pbtxt`."""

from __future__ import annotations

from typing import Any

from ..artifact import Artifact
from ..errors import ConversionError
from ..spec import Axis, TensorSpec
from .platforms import Platform, triton_type
from .template import refuse

_DERIVED = ("name", "data_type", "dims", "reshape")
"""What the artifact decides of a tensor; the rest is the template's."""


def fill_tensors(config: Any, artifact: Artifact, platform: Platform, *, batched: bool) -> None:
    """Write the artifact's inputs and outputs, and keep what else the template says of them.

    Raises:
        UsageProblem: the template contradicts the artifact.
        ConversionError: the platform cannot serve a tensor.
    """
    template = type(config)()
    template.CopyFrom(config)
    for field, specs in (
        ("input", artifact.signature.inputs),
        ("output", artifact.signature.outputs),
    ):
        said = {tensor.name: tensor for tensor in getattr(template, field)}
        config.ClearField(field)
        for spec in specs:
            wire = artifact.wire(spec.name)
            tensor = getattr(config, field).add(
                name=wire, data_type=triton_type(platform, spec.name, spec.dtype)
            )
            _fill_dims(tensor, spec, platform, batched=batched)
            if wire in said:
                _merge(field, said.pop(wire), tensor)
        if said:
            names = ", ".join(tensor.name for tensor in getattr(config, field))
            raise refuse(field, f"has {next(iter(said))!r}, which is none of the model's: {names}")


def _fill_dims(tensor: Any, spec: TensorSpec, platform: Platform, *, batched: bool) -> None:
    shape = spec.shape[1:] if batched else spec.shape
    dims = [-1 if isinstance(dim, Axis) else dim for dim in shape]
    if 0 in dims:
        raise ConversionError(
            f"The tensor {spec} is empty, which Triton cannot serve.",
            remedy="Remove the tensor from the model's inputs or outputs.",
        )
    if dims:
        tensor.dims.extend(dims)
        return
    # A tensor must have dims on the wire. For one number a row, Triton itself takes them off again;
    # without rows it refuses that ("cannot have empty reshape for non-batching model").
    tensor.dims.append(1)
    if batched:
        tensor.reshape.SetInParent()
    elif not platform.scalars:
        raise ConversionError(
            f"The tensor {spec} has no dimensions, which Triton's {platform.name} cannot serve.",
            remedy="Give it a dimension inside the model, for example with x.reshape(1).",
        )


def _merge(field: str, said: Any, tensor: Any) -> None:
    """Add to `tensor` what the template says beyond what the artifact decides."""
    for part in ("data_type", "dims"):
        if getattr(said, part) and getattr(said, part) != getattr(tensor, part):
            raise refuse(f"{part} of {field} {said.name!r}", "is not what the model declares")
    differs = (said.HasField("reshape"), said.reshape) != (
        tensor.HasField("reshape"),
        tensor.reshape,
    )
    if said.HasField("reshape") and differs:
        raise refuse(f"reshape of {field} {said.name!r}", "is not what the model needs")
    for part in _DERIVED:
        said.ClearField(part)
    tensor.MergeFrom(said)
