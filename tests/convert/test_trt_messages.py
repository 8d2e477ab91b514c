from __future__ import annotations

import pytest

from tconv.convert.trt_messages import clean_reason, explain_build
from tconv.errors import ConversionError, TconvError, Unavailable


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param("false", "", id="nothing said"),
        pytest.param("", "", id="empty"),
        pytest.param('a && "No such thing."', "No such thing", id="quoted"),
        pytest.param(
            "Invalid Node\nI::f: Error Code 4: Usage Error (n: bad (very). In f at /a.cpp:4)",
            "n: bad (very)",
            id="positions go",
        ),
    ],
)
def test_of_a_message_the_reason_is_kept(message: str, reason: str) -> None:
    assert clean_reason(message) == reason


NO_DEVICE = "f: Error Code 1: Myelin (CHECK(status == CUDA_SUCCESS) failed)"
BAD_LAYER = "f: Error Code 9: Internal Error (layer: no implementation)"


@pytest.mark.parametrize(
    ("messages", "is_rtx", "kind", "problem"),
    [
        pytest.param([NO_DEVICE], True, Unavailable, "without a GPU", id="the CPU's fault"),
        pytest.param([NO_DEVICE], False, ConversionError, "CUDA_SUCCESS", id="the GPU's fault"),
        pytest.param(
            [NO_DEVICE, BAD_LAYER], True, ConversionError, "no implementation", id="the graph's"
        ),
    ],
)
def test_a_build_without_gpu_blames_the_graph_only_for_its_own(
    messages: list[str], is_rtx: bool, kind: type[TconvError], problem: str
) -> None:
    error = explain_build(messages, is_rtx=is_rtx)
    assert type(error) is kind
    assert problem in error.problem
