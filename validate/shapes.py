"""The shape of an output, from what it was at several sizes of the inputs."""

from __future__ import annotations

from ..errors import TconvError
from ..spec import BATCH, Axis, Dim, Signature
from .batching import Observation
from .sampling import Sizes


def infer_shape(name: str, observed: list[Observation], signature: Signature) -> tuple[Dim, ...]:
    """Return an output's shape: what varies as an input's axis does is that axis.

    Raises:
        TconvError: its rank changes with the sizes.
    """
    shapes = [(sizes, shapes[name]) for sizes, shapes in observed if name in shapes]
    ranks = {len(shape): (sizes, shape) for sizes, shape in shapes}
    if len(ranks) > 1:
        (sizes, shape), (other_sizes, other) = list(ranks.values())[:2]
        raise TconvError(
            f"The output {name!r} has shape {list(shape)} at {_say(sizes)} but {list(other)} at "
            f"{_say(other_sizes)}: a server needs one rank.",
            remedy="Look for squeeze() without a dimension; name the axis: squeeze(-1).",
        )
    return tuple(_infer_dim(name, place, shapes, signature) for place in range(len(shapes[0][1])))


def _infer_dim(
    name: str, place: int, shapes: list[tuple[Sizes, tuple[int, ...]]], signature: Signature
) -> Dim:
    sizes = {shape[place] for _, shape in shapes}
    axes = [
        axis
        for axis in signature.axes.values()
        if all(at.get(axis.name) == shape[place] for at, shape in shapes)
    ]
    if axes and (len(sizes) > 1 or (place == 0 and axes[0].name == BATCH)):
        return axes[0]
    return sizes.pop() if len(sizes) == 1 else Axis(f"{name}_dim{place}")


def _say(sizes: Sizes) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in sizes.items())
