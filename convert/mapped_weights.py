"""Let an ONNX file point into the safetensors file that its weights were loaded from.

transformers maps the file into memory, so a parameter that nobody touched still *is* a part of the
file. Its address gives the offset: the bytes are neither read nor held a second time.
"""

from __future__ import annotations

import bisect
import shutil
from pathlib import Path
from typing import Any

import msgspec

SUFFIX = ".safetensors"
HUB = "/blobs/"
"""What is in the path of a file that the hub's cache links to by its name."""
SMALLEST = 1024
"""Bytes below which a weight stays inside the ONNX file."""
OWN_MEMORY = ("Anonymous:", "Swap:")
"""What smaps calls pages that are the process's own."""
WORTHWHILE = 0.8
"""The share of a file that must be used before it is copied along."""


class Mapping(msgspec.Struct, frozen=True):
    """One range of addresses that shows a file."""

    start: int
    end: int
    offset: int
    path: Path


def find_mappings() -> list[Mapping]:
    """Return where this process has safetensors files mapped and unchanged, by address.

    The mappings are private: what is written into one becomes memory of its own, as proc(5) counts
    in /proc/PID/smaps, and the file does not know of it.
    """
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        return []
    found: dict[int, Mapping] = {}
    start = 0
    for line in lines:
        fields = line.split(maxsplit=5)
        if not fields[0].endswith(":"):
            start, end = (int(address, 16) for address in fields[0].split("-"))
            name = "".join(fields[5:])
            if name.endswith(SUFFIX) or HUB in name:
                found[start] = Mapping(start, end, int(fields[2], 16), Path(name))
        elif fields[0] in OWN_MEMORY and fields[1] != "0":
            found.pop(start, None)
    return sorted(found.values(), key=lambda mapping: mapping.start)


def locate(mappings: list[Mapping], address: int, size: int) -> tuple[Path, int] | None:
    """Return the file and offset that `size` bytes at `address` show, if they show one."""
    place = bisect.bisect_right([mapping.start for mapping in mappings], address) - 1
    if place < 0:
        return None
    mapping = mappings[place]
    if address + size > mapping.end:
        return None
    return mapping.path, mapping.offset + address - mapping.start


def attach_weights(model: Any, folder: Path) -> list[str]:
    """Make the initializers of an onnx-ir `model` point into copies of the files they come from.

    Returns the names of the files that were copied into `folder`; none where it is not worthwhile.
    """
    import onnx_ir
    import torch

    mappings = find_mappings()
    found: dict[Path, list[tuple[Any, int]]] = {}
    for value in model.graph.initializers.values():
        tensor = getattr(value.const_value, "raw", None)
        # What the optimiser folded is a NumPy array, and lies in no file.
        if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
            continue
        if value.const_value.nbytes < SMALLEST:
            continue
        place = locate(mappings, tensor.data_ptr(), value.const_value.nbytes)
        if place is not None:
            found.setdefault(place[0], []).append((value, place[1]))
    names = []
    for number, (path, values) in enumerate(sorted(found.items())):
        used = sum(value.const_value.nbytes for value, _ in values)
        if used < WORTHWHILE * path.stat().st_size:
            continue
        name = "model.safetensors" if len(found) == 1 else f"model-{number}.safetensors"
        shutil.copyfile(path, folder / name)
        names.append(name)
        for value, offset in values:
            value.const_value = onnx_ir.ExternalTensor(
                name,
                offset,
                value.const_value.nbytes,
                value.const_value.dtype,
                shape=value.const_value.shape,
                name=value.name,
                base_dir=folder,
            )
    return names
