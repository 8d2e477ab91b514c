from __future__ import annotations

import ctypes.util

import pytest

from tconv.convert.gpu import count_gpus, describe_gpu

HAS_DRIVER = ctypes.util.find_library("cuda") is not None


@pytest.mark.skipif(HAS_DRIVER, reason="the NVIDIA driver is installed")
def test_without_a_driver_there_is_no_gpu() -> None:
    assert count_gpus() == 0
    assert describe_gpu() == {}


@pytest.mark.gpu
@pytest.mark.skipif(not count_gpus(), reason="there is no NVIDIA GPU")
def test_a_gpu_is_described() -> None:
    described = describe_gpu()
    assert described["gpu"]
    assert float(described["compute_capability"]) >= 5
    assert float(described["cuda"]) >= 11
