"""The source that transformers holds: a hub id, a local folder, or a config with random weights."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import TconvError, Unavailable, UsageProblem
from ..extras import needs
from ..spec import parse_signature
from .base import SourceRequest
from .torch_model import TorchModel
from .transformers_inputs import describe_inputs

CONFIG = "config.json"
CONNECT_SECONDS = 3.0

TASKS = {
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
    "image-classification": "AutoModelForImageClassification",
    "ctc": "AutoModelForCTC",
    "zero-shot-image-classification": "AutoModelForZeroShotImageClassification",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "audio-classification": "AutoModelForAudioClassification",
    "object-detection": "AutoModelForObjectDetection",
    "image-segmentation": "AutoModelForSemanticSegmentation",
    "depth-estimation": "AutoModelForDepthEstimation",
    "feature-extraction": "AutoModel",
}
"""The pipelines' own names for a task, in the order they are tried where a config states none."""

LEFT_OUT: dict[str, Any] = {"use_cache": False, "return_dict": True}
"""One forward pass: caches belong to generation, which is a server's loop and not a graph's."""
EXPERTS = {"experts_implementation": "eager"}
"""Mixtures of experts: the default kernel refuses small sizes even in plain torch."""


class _Transformers:
    name = "transformers"
    preload = (
        "torch",
        "torch.export",
        "torch.onnx",
        "onnxscript",
        "onnx",
        "onnxruntime",
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
        return len(parts) in (1, 2) and all(parts) and ":" not in model and "\\" not in model

    def default_name(self, model: str) -> str:
        return Path(model).resolve().name if Path(model).is_dir() else model.rpartition("/")[2]

    def load(self, request: SourceRequest, folder: Path) -> TorchModel:
        with needs("transformers"):
            import torch
            import transformers
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        snapshot = folder / "model"
        if request.random_weights and not (snapshot / CONFIG).is_file():
            config = _find_config(request)
            torch.manual_seed(request.seed)
            _build(_model_class(config, request), config).save_pretrained(snapshot)
        where = str(snapshot) if request.random_weights else request.model
        config = _find_config(request) if not request.random_weights else _local_config(where)
        module = _load_weights(where, config, request)
        return _as_model(module, config, request)


def _as_model(module: Any, config: Any, request: SourceRequest) -> TorchModel:
    described = describe_inputs(module, config)
    signature = parse_signature(request.inputs) if request.inputs else described.signature
    accepted = described.parameters
    unknown = [name for name in signature.input_names if name not in accepted]
    if unknown:
        raise UsageProblem(
            f"{type(module).__name__} takes no input called {unknown[0]!r}.",
            remedy=f"It takes: {', '.join(accepted)}.",
        )
    constants = {name: value for name, value in LEFT_OUT.items() if name in accepted}
    return TorchModel(
        module,
        described.with_domains(signature),
        examples={},
        batch_declared=bool(request.inputs) and any(spec.is_batched for spec in signature.inputs),
        constants=constants,
        frozen={name: repr(value) for name, value in constants.items()},
        device=request.device,
        before_export=lambda: _batch_experts(module),
    )


def _batch_experts(module: Any) -> None:
    """Compute every expert on every token: a graph can't hold which ones an example chose."""
    if module._can_set_experts_implementation():
        module.set_experts_implementation("batched_mm")


def _find_config(request: SourceRequest) -> Any:
    """Return the config of a folder or a hub id, or the library's default for a model type."""
    from transformers import CONFIG_MAPPING, AutoConfig

    local = Path(request.model).is_dir()
    reachable = local or _hub_answers()
    try:
        return AutoConfig.from_pretrained(
            request.model,
            local_files_only=not reachable,
            trust_remote_code=request.trust_remote_code,
        )
    except (OSError, ValueError, KeyError) as error:
        if request.random_weights and request.model in CONFIG_MAPPING:
            return CONFIG_MAPPING[request.model]()
        raise _explain(error, request, local=local, reachable=reachable) from error


def _local_config(folder: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, local_files_only=True)


def _hub_answers() -> bool:
    """Whether the hub can be reached: its client would retry for half a minute to find out."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    port = address.port or (443 if address.scheme == "https" else 80)
    with (
        contextlib.suppress(OSError),
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_SECONDS),
    ):
        return True
    return False


def _explain(
    error: Exception, request: SourceRequest, *, local: bool, reachable: bool
) -> TconvError:
    model = request.model
    if "trust_remote_code" in str(error):
        return UsageProblem(
            f"{model!r} brings Python code of its own.",
            remedy="Read it, then run it with --trust-remote-code.",
        )
    if local:
        return UsageProblem(
            f"{model}/{CONFIG} can't be used: {_first_line(error)}",
            remedy="Check that the folder was written by save_pretrained of a library this new.",
        )
    if not reachable:
        return Unavailable(
            f"The model hub can't be reached and {model!r} is not in the local cache.",
            remedy="Give a local folder, or --random-weights with a model type such as gpt2.",
        )
    return UsageProblem(
        f"The hub has no model {model!r} that can be loaded: {_first_line(error)}",
        remedy="Check the spelling; for a private model log in with `hf auth login`.",
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _model_class(config: Any, request: SourceRequest) -> Any:
    """Return the class to load: the task's, the config's own, or the first task that fits."""
    import transformers

    if request.task is not None:
        if request.task not in TASKS:
            raise UsageProblem(
                f"There is no task called {request.task!r}.",
                remedy=f"Choose from: {', '.join(TASKS)}.",
            )
        auto = getattr(transformers, TASKS[request.task])
        if not _offers(auto, config) and not getattr(config, "auto_map", None):
            raise UsageProblem(
                f"A {config.model_type} model can't do {request.task}.",
                remedy=f"Leave --task out, or choose from: {', '.join(_tasks_of(config))}.",
            )
        return auto
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    if getattr(config, "auto_map", None):
        return transformers.AutoModel
    return getattr(transformers, TASKS[_tasks_of(config)[0]])


def _tasks_of(config: Any) -> list[str]:
    import transformers

    fitting = [task for task, auto in TASKS.items() if _offers(getattr(transformers, auto), config)]
    if not fitting:
        raise UsageProblem(
            f"transformers has no model class for the type {config.model_type!r}.",
            remedy="Give a Python factory instead: file.py:factory.",
        )
    return fitting


def _offers(auto: Any, config: Any) -> bool:
    # The names of the mapping, and not the mapping itself: looking into that imports every model.
    return config.model_type in auto._model_mapping._model_mapping


def _build(model_class: Any, config: Any) -> Any:
    build = getattr(model_class, "from_config", None) or model_class._from_config
    return build(config, **EXPERTS)


def _load_weights(where: str, config: Any, request: SourceRequest) -> Any:
    import torch

    try:
        return _model_class(config, request).from_pretrained(
            where,
            config=config,
            dtype=torch.float32,
            local_files_only=request.random_weights or Path(where).is_dir(),
            trust_remote_code=request.trust_remote_code,
            **EXPERTS,
        )
    except (OSError, ValueError) as error:
        raise UsageProblem(
            f"The weights of {request.model!r} can't be loaded: {_first_line(error)}",
            remedy="Check that the folder holds model.safetensors, or add --random-weights.",
        ) from error


SOURCE = _Transformers()
