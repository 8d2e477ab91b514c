"""The source that transformers holds: a hub id, a local folder, or a config with random weights."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UsageProblem
from ..extras import needs, version_of
from ..spec import Signature, parse_signature
from .base import SourceRequest
from .torch_model import PRELOAD, TorchModel
from .transformers_files import Hints, keep_files, read_hints
from .transformers_hub import CONFIG, find_config, first_line, is_local
from .transformers_inputs import describe_inputs, find_padding
from .transformers_sizes import narrow
from .transformers_tasks import model_class

LEFT_OUT: dict[str, Any] = {"use_cache": False, "use_mems": False, "return_dict": True}
"""One forward pass: caches belong to generation, which is a server's loop and not a graph's."""


class _Transformers:
    name = "transformers"
    preload = (
        *PRELOAD,
        "transformers.modeling_utils",
        "transformers.models.auto.modeling_auto",
        "transformers.generation",
        "transformers.masking_utils",
        "transformers.integrations.sdpa_attention",
    )

    def claims(self, model: str) -> bool:
        if (Path(model) / CONFIG).is_file():
            return True
        parts = model.split("/")
        is_id = len(parts) in (1, 2) and all(parts) and parts[0] not in (".", "..", "~")
        return is_id and ":" not in model and "\\" not in model

    def default_name(self, model: str) -> str:
        return Path(model).resolve().name if Path(model).is_dir() else model.rpartition("/")[2]

    def load(self, request: SourceRequest, folder: Path) -> TorchModel:
        with needs("transformers"):
            import transformers
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        _forget_others(request, folder)
        if request.random_weights:
            where, local_only = str(_make_snapshot(request, folder)), True
        else:
            where, local_only = request.model, is_local(request.model)
        config = find_config(msgspec.structs.replace(request, model=where), local_only=local_only)
        module = _load_weights(where, config, request, local_only=local_only)
        hints = read_hints(where, local_only=local_only)
        return _as_model(module, config, hints, request, folder)


def _forget_others(request: SourceRequest, folder: Path) -> None:
    """Clear `folder` of what an earlier build made for another request."""
    config = Path(request.model) / CONFIG
    content = [
        msgspec.json.encode(msgspec.structs.replace(request, device="")),
        config.read_bytes() if config.is_file() else b"",
        msgspec.json.encode(version_of("transformers")),
    ]
    key, path = hashlib.sha256(b"\n".join(content)).hexdigest(), folder / "made_for"
    if not path.is_file() or path.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path.write_text(key)


def _make_snapshot(request: SourceRequest, folder: Path) -> Path:
    """Return the folder of a model with random weights, which is made if it is not there."""
    import torch

    snapshot, scratch = folder / "model", folder / "model.part"
    if snapshot.is_dir():
        return snapshot
    local_only = is_local(request.model)
    config = find_config(request, local_only=local_only)
    chosen = model_class(config, request.task)
    torch.manual_seed(request.seed)
    try:
        if hasattr(chosen, "from_config"):
            module = chosen.from_config(config, trust_remote_code=request.trust_remote_code)
        else:
            module = chosen._from_config(config)
    except Exception as error:  # the numbers of a config can contradict each other in any way
        raise UsageProblem(
            f"No model can be built from the config of {request.model!r}: {first_line(error)}",
            remedy=f"Mend {CONFIG}.",
        ) from error
    shutil.rmtree(scratch, ignore_errors=True)
    module.save_pretrained(scratch)
    keep_files(request.model, scratch, local_only=local_only)
    return scratch.rename(snapshot)


def _load_weights(where: str, config: Any, request: SourceRequest, *, local_only: bool) -> Any:
    import torch

    chosen = model_class(config, request.task)
    try:
        module, found = chosen.from_pretrained(
            where,
            config=config,
            dtype=torch.float32,
            local_files_only=local_only,
            trust_remote_code=request.trust_remote_code,
            output_loading_info=True,
        )
    except MemoryError:
        raise
    except Exception as error:  # a file can be missing, cut short, or another model's
        raise UsageProblem(
            f"The weights of {request.model!r} can't be loaded: {first_line(error)}",
            remedy="Check that the folder holds model.safetensors, or add --random-weights.",
        ) from error
    if missing := sorted(found["missing_keys"]):
        raise UsageProblem(
            f"The weights of {request.model!r} lack {len(missing)} that a "
            f"{type(module).__name__} has: {missing[0]} …",
            remedy="Give the --task that it was trained for, or leave --task out.",
        )
    _set_experts(module, "eager")
    return module


def _set_experts(module: Any, how: str) -> None:
    """Choose how a mixture of experts is computed.

    `eager` is the reference; the default kernel refuses small sizes even in plain torch. For a
    graph every expert is computed (`batched_mm`): it can't hold which ones an example chose.
    """
    if getattr(module, "_can_set_experts_implementation", bool)():
        module.set_experts_implementation(how)


def _as_model(
    module: Any, config: Any, hints: Hints, request: SourceRequest, folder: Path
) -> TorchModel:
    described = describe_inputs(module, config, hints)
    accepted = described.parameters
    constants = {name: value for name, value in LEFT_OUT.items() if name in accepted}
    stated = parse_signature(request.inputs) if request.inputs else None
    signature = described.with_domains(stated or described.complete())
    if unknown := [name for name in signature.input_names if name not in accepted]:
        raise UsageProblem(
            f"{type(module).__name__} takes no input called {unknown[0]!r}.",
            remedy=f"It takes: {', '.join(accepted)}.",
        )
    if stated is None:
        signature = _narrowed(module, signature, constants, folder / "inputs.json")
    model = TorchModel(
        module,
        signature,
        examples={},
        batch_declared=stated is not None and any(spec.is_batched for spec in stated.inputs),
        constants=constants,
        frozen={name: repr(value) for name, value in constants.items()},
        device=request.device,
        before_export=lambda: _set_experts(module, "batched_mm"),
    )
    model.padding = find_padding(config)
    return model


def _narrowed(
    module: Any, signature: Signature, constants: dict[str, Any], kept: Path
) -> Signature:
    """Return the signature with sizes that the model runs at, as they were found the first time."""
    if kept.is_file():
        return msgspec.json.decode(kept.read_bytes(), type=Signature)
    # On the CPU: an index out of range leaves a GPU unusable to the whole process.
    trial = TorchModel(
        module, signature, examples={}, batch_declared=False, constants=constants, device="cpu"
    )
    found = narrow(signature, trial.run)
    kept.write_bytes(msgspec.json.encode(found))
    return found


SOURCE = _Transformers()
