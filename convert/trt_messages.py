"""What TensorRT says of a graph it refuses, as one sentence and a remedy."""

from __future__ import annotations

import re
from typing import Any

from ..errors import ConversionError, Unavailable

_ERROR_CODE = re.compile(r"Error Code \d+: [^(]*\((.+)\)\s*$", re.MULTILINE)
_PLACE = re.compile(r"\s*\bIn \S+ at \S+:\d+")
_QUOTED = re.compile(r'"([^"]+)"')
_CODE = re.compile(r"^(Assertion failed: )?(creator|false)\b:? *")
_NO_DEVICE = re.compile(r"cudaError|CUDA_SUCCESS|Cuda Runtime")
_NO_PLUGIN = re.compile(r"plugin registry", re.IGNORECASE)
_PROFILE = re.compile(r"violate shape constraints: *|static dimensions that don't match")

_REPLACE = "Replace it in the model, or leave out the trt targets."
_ELSEWHERE = "Run the same command on a machine with a GPU and tconv[gpu]."


def clean_reason(message: str) -> str:
    """Return the part of TensorRT's message that speaks of the graph, without source positions."""
    if match := _ERROR_CODE.search(message):
        return _PLACE.sub("", match[1]).strip(" .\n")
    if match := _QUOTED.search(message):
        message = match[1]
    text = _CODE.sub("", message.strip().partition("\n")[0]).strip(" .?!")
    if text.startswith("Plugin not found"):  # what the parser looks for when it knows no operator
        return "it knows no such operator"
    return text.rpartition("Assertion failed: ")[2]


def explain_parse(
    filename: str, errors: list[Any], *, is_rtx: bool
) -> ConversionError | Unavailable:
    """Return what the parser's errors (`tensorrt.ParserError`) mean; there may be none."""
    refused = [error for error in errors if error.node_operator()]
    if not refused:
        reason = clean_reason(errors[0].desc()) if errors else "it holds no ONNX graph"
        return ConversionError(
            f"TensorRT cannot read {filename}: {reason or 'the parser gives no reason'}.",
            remedy="Convert to the onnx target again, or leave out the trt targets.",
        )
    certain = [error for error in refused if not (is_rtx and _may_need_gpu(error.desc()))]
    if not certain:
        return Unavailable(
            f"TensorRT-RTX, which does the preflight, does not have {_name(refused)}; "
            "TensorRT itself may.",
            remedy=_ELSEWHERE,
        )
    reason = clean_reason(certain[0].desc())
    problem = f"TensorRT cannot take {_name(certain)}"
    return ConversionError(f"{problem}: {reason}." if reason else f"{problem}.", remedy=_REPLACE)


def _name(errors: list[Any]) -> str:
    first = errors[0]
    text = f"the operator {first.node_operator()} (node {first.node_name() or first.node()!r})"
    others = sorted({error.node_operator() for error in errors} - {first.node_operator()})
    return f"{text}, nor {', '.join(others)}" if others else text


def _may_need_gpu(message: str) -> bool:
    """Say whether TensorRT-RTX lacks a plugin that TensorRT brings, or it lacks the GPU."""
    return bool(_NO_PLUGIN.search(message) or _NO_DEVICE.search(clean_reason(message)))


def explain_build(messages: list[str], *, is_rtx: bool) -> ConversionError | Unavailable:
    """Return what the builder's messages mean; there is at least one."""
    reasons = [clean_reason(message) for message in messages]
    for reason in reasons:
        if match := _PROFILE.search(reason):
            what = reason[match.end() :] if match[0].startswith("violate") else reason
            return ConversionError(
                f"The graph has a shape baked in that the ranges asked for contradict: {what}.",
                remedy="Export it with that axis left to vary, or state a range that it fits.",
            )
    of_graph = [reason for reason in reasons if not _NO_DEVICE.search(reason)]
    if is_rtx and not of_graph:
        return Unavailable(
            "TensorRT-RTX cannot build this graph ahead of time without a GPU.",
            remedy=_ELSEWHERE,
        )
    return ConversionError(
        f"TensorRT could not build an engine: {(of_graph or reasons)[0]}.",
        remedy="The log has what TensorRT said; or leave out the trt targets.",
    )
