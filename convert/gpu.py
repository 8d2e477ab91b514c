"""Which NVIDIA GPUs are here, asked of the driver alone: no framework is imported.

The functions called are those of the CUDA driver API (libcuda) and of NVML (libnvidia-ml). They
start CUDA in this process, so do not call them in a process that forks children that use a GPU.
"""

from __future__ import annotations

import ctypes

# CUdevice_attribute in cuda.h.
_MAJOR, _MINOR = 75, 76


def count_gpus() -> int:
    """Return how many GPUs this process may use; `CUDA_VISIBLE_DEVICES` counts."""
    driver = _start("libcuda.so.1", "cuInit", 0)
    number = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(number)) != 0:
        return 0
    return number.value


def describe_gpu() -> dict[str, str]:
    """Return the driver, its CUDA, and the name and compute capability of the first GPU."""
    if not count_gpus():
        return {}
    driver = ctypes.CDLL("libcuda.so.1")
    name = ctypes.create_string_buffer(128)
    cuda, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetName(name, len(name), 0)
    driver.cuDriverGetVersion(ctypes.byref(cuda))
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, 0)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, 0)
    return {
        "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        "driver": _driver_version(),
        "gpu": name.value.decode(),
        "compute_capability": f"{major.value}.{minor.value}",
    }


def _driver_version() -> str:
    nvml = _start("libnvidia-ml.so.1", "nvmlInit_v2")
    text = ctypes.create_string_buffer(96)
    if nvml is None or nvml.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return "unknown"
    return text.value.decode()


def _start(library: str, initialize: str, *arguments: int) -> ctypes.CDLL | None:
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return None
    return loaded if getattr(loaded, initialize)(*arguments) == 0 else None
