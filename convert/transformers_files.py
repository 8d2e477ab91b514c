"""What the files beside a checkpoint's config say of its inputs: its tokenizer's, its processor's.

They are read as JSON; none of the packages that tokenizers and processors need is called for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

TOKENIZER = "tokenizer_config.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")


class Hints(msgspec.Struct, frozen=True):
    """What is known beyond the config; None where nothing is said.

    `names` are the inputs that the tokenizer makes, `longest` the most tokens that it leaves,
    `image` the height and width after processing, `gives_mask` whether sounds come with a mask.
    """

    names: tuple[str, ...] | None = None
    longest: int | None = None
    image: tuple[int, int] | None = None
    gives_mask: bool | None = None

    def gives(self, name: str) -> bool:
        """Whether the tokenizer makes the input `name`, as far as is known."""
        return self.names is None or name in self.names


def read_hints(model: str, *, local_only: bool) -> Hints:
    """Return what the files of a folder or of a hub id say."""
    tokenizer = _read(model, TOKENIZER, local_only=local_only)
    processor: dict[str, Any] = {}
    for name in PROCESSORS:
        found = _read(model, name, local_only=local_only)
        for part in ("image_processor", "feature_extractor"):
            found |= found.get(part) or {}
        processor = found | processor
    names, longest = tokenizer.get("model_input_names"), tokenizer.get("model_max_length")
    mask = processor.get("return_attention_mask")
    return Hints(
        names=tuple(map(str, names)) if isinstance(names, list) else None,
        # A tokenizer without a limit states a number beyond all sense.
        longest=longest if isinstance(longest, int) and 0 < longest < 1 << 31 else None,
        image=_image_size(processor),
        gives_mask=mask if isinstance(mask, bool) else None,
    )


def keep_files(model: str, folder: Path, *, local_only: bool) -> None:
    """Copy the files that `read_hints` reads into `folder`."""
    for name in (TOKENIZER, *PROCESSORS):
        if path := _find(model, name, local_only=local_only):
            shutil.copyfile(path, folder / name)


def _find(model: str, name: str, *, local_only: bool) -> str | None:
    from transformers.utils.hub import cached_file

    found: str | None = cached_file(
        model,
        name,
        local_files_only=local_only,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return found


def _read(model: str, name: str, *, local_only: bool) -> dict[str, Any]:
    path = _find(model, name, local_only=local_only)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        content = {}  # these files only add to what the config says
    return content if isinstance(content, dict) else {}


def _image_size(processor: dict[str, Any]) -> tuple[int, int] | None:
    """Return the size that images have in the end: what is cropped, else what is resized."""
    crops = processor.get("do_center_crop", "crop_size" in processor)
    for name in ("crop_size", "size") if crops else ("size",):
        size = processor.get(name)
        if isinstance(size, int):
            return size, size
        if isinstance(size, dict):
            edge = size.get("shortest_edge")
            height, width = size.get("height", edge), size.get("width", edge)
            if isinstance(height, int) and isinstance(width, int):
                return height, width
    return None
