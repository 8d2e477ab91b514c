"""Find a model's config: in a folder, on the hub, in its cache, or the library's default one."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import TconvError, Unavailable, UsageProblem
from .base import SourceRequest

CONFIG = "config.json"
CONNECT_SECONDS = 3.0


def is_local(model: str) -> bool:
    """Whether everything that can be had of `model` is on this machine already."""
    return Path(model).is_dir() or not _hub_answers()


def find_config(request: SourceRequest, *, local_only: bool) -> Any:
    """Return the config of a folder or a hub id, or the library's default for a model type.

    Raises:
        UsageProblem: there is no such model, or its config is of no use.
        Unavailable: the hub can't be reached.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    try:
        return AutoConfig.from_pretrained(
            request.model,
            local_files_only=local_only,
            trust_remote_code=request.trust_remote_code,
        )
    except Exception as error:  # a config can be wrong in as many ways as there are models
        if request.random_weights and request.model in CONFIG_MAPPING:
            return CONFIG_MAPPING[request.model]()
        raise _explain(error, request.model, local_only=local_only) from error


def first_line(error: Exception) -> str:
    """Return the start of what an exception says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = 2 if lines and lines[0].endswith(":") else 1
    return " ".join(lines[:told]) or type(error).__name__


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


def _explain(error: Exception, model: str, *, local_only: bool) -> TconvError:
    if "trust_remote_code" in str(error):
        return UsageProblem(
            f"{model!r} brings Python code of its own.",
            remedy="Read it, then run it with --trust-remote-code.",
        )
    if Path(model).is_dir():
        return UsageProblem(
            f"{model}/{CONFIG} can't be used: {first_line(error)}",
            remedy="Check that the folder was written by save_pretrained of a library this new.",
        )
    if local_only:
        return Unavailable(
            f"The model hub can't be reached and {model!r} is not in the local cache.",
            remedy="Give a local folder, or --random-weights with a model type such as gpt2.",
        )
    return UsageProblem(
        f"The hub has no model {model!r} that can be loaded: {first_line(error)}",
        remedy="Check the spelling; for a private model log in with `hf auth login`.",
    )
