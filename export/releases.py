"""What each monthly release of Triton ships, and which ONNX files it reads.

Sources of the figures, for NVIDIA's image `nvcr.io/nvidia/tritonserver:<release>-py3`:

- server version: the file `TRITON_VERSION` on the branch `r<release>` of the repository
  triton-inference-server/server.
- ONNX Runtime: the table "ONNX Runtime Versions" of its `docs/introduction/compatibility.md`.
- TensorRT and PyTorch (the container's own build): NVIDIA's "Frameworks Support Matrix" and the
  release notes of the containers of that month. TensorRT was read again, when this was written, for
  24.04 to 24.08 (an early `docs/compatibility.md`), 24.12, 25.01 and 25.06 (release notes), and
  PyTorch for every other month or so (the tags `nv24.5` to `nv25.12` in `compatibility.md`).
  None where no source could be read.
- backends: what `build.py --enable-all` builds on the branch; `tensorflow` is on `r25.02` and no
  longer on `r25.03`.
- opset and IR version: those of the onnx release that an ONNX Runtime is built with, by the table
  `onnx.helper.VERSION_TABLE`. Its "Compatibility" page says that it runs the opsets of released
  onnx up to that one; a higher IR version it refuses. Which onnx: its `cmake/deps.txt` and the pull
  requests "Integration with ONNX 1.18.0" (1.23) and "ONNX 1.21.0 integration" (after 1.24); where
  two onnx releases came into question, the older one stands here.
"""

from __future__ import annotations

import re

import msgspec

from ..errors import UsageProblem


class OnnxSupport(msgspec.Struct, frozen=True):
    """The newest ONNX that is read: IR version, and opsets of `ai.onnx` and `ai.onnx.ml`."""

    ir: int
    opset: int
    ml_opset: int


class Release(msgspec.Struct, frozen=True):
    """One release of Triton, as NVIDIA's image has it. None: not known."""

    name: str
    server: str
    onnxruntime: str
    onnx: OnnxSupport
    backends: frozenset[str]
    tensorrt: str | None = None
    pytorch: str | None = None


_SUPPORT = {
    "1.17": OnnxSupport(9, 20, 4),  # onnx 1.15
    "1.18": OnnxSupport(10, 21, 5),  # onnx 1.16
    "1.19": OnnxSupport(10, 21, 5),
    "1.20": OnnxSupport(10, 21, 5),
    "1.21": OnnxSupport(10, 22, 5),  # onnx 1.17
    "1.22": OnnxSupport(10, 22, 5),
    "1.23": OnnxSupport(11, 23, 5),  # onnx 1.18
    "1.24": OnnxSupport(12, 24, 5),  # onnx 1.19 at least
    "1.27": OnnxSupport(13, 26, 5),  # onnx 1.21
    "1.28": OnnxSupport(13, 26, 5),
}
"""By the minor version of ONNX Runtime."""

_BACKENDS = frozenset({"onnxruntime", "pytorch", "tensorrt", "python", "openvino", "dali", "fil"})
_WITH_TENSORFLOW = _BACKENDS | {"tensorflow"}
_LAST_TENSORFLOW = "25.02"

_TABLE = """
24.04 2.45.0 1.17.3 8.6.3      2.3.0
24.05 2.46.0 1.18.0 10.0.1.6   2.4.0
24.06 2.47.0 1.18.0 10.1.0.27  2.4.0
24.07 2.48.0 1.18.1 10.2.0.19  2.4.0
24.08 2.49.0 1.18.1 10.3.0.26  2.5.0
24.09 2.50.0 1.19.2 10.4.0.26  2.5.0
24.10 2.51.0 1.19.2 10.5.0.18  2.5.0
24.11 2.52.0 1.19.2 10.6.0.26  2.6.0
24.12 2.53.0 1.20.1 10.7.0.23  2.6.0
25.01 2.54.0 1.20.1 10.8.0.43  2.6.0
25.02 2.55.0 1.20.1 10.8.0.43  2.7.0
25.03 2.56.0 1.21.0 10.9.0.34  2.7.0
25.04 2.57.0 1.21.0 10.9.0.34  2.7.0
25.05 2.58.0 1.22.0 10.10.0.31 2.8.0
25.06 2.59.0 1.22.0 10.11.0.33 2.8.0
25.07 2.59.1 1.22.0 10.11.0.33 2.8.0
25.08 2.60.0 1.23.0 10.13.2.6  2.8.0
25.09 2.61.0 1.23.0 10.13.3.9  2.9.0
25.10 2.62.0 1.23.1 10.13.3.9  2.9.0
25.11 2.63.0 1.23.2 10.14.1.48 2.10.0
25.12 2.64.0 1.23.2 10.14.1.48 2.10.0
26.01 2.65.0 1.23.2 - -
26.02 2.66.0 1.24.1 - -
26.03 2.67.0 1.24.2 - -
26.04 2.68.0 1.24.4 - -
26.05 2.69.0 1.24.4 - -
26.06 2.70.0 1.24.4 - -
26.07 2.71.0 1.27.0 - -
26.08 2.72.0 1.28.0 - -
"""
"""Release, server, ONNX Runtime, TensorRT, PyTorch."""


def _read(line: str) -> Release:
    name, server, onnxruntime, *rest = line.split()
    tensorrt, pytorch = (None if figure == "-" else figure for figure in rest)
    return Release(
        name,
        server,
        onnxruntime,
        _SUPPORT[onnxruntime.rpartition(".")[0]],
        _WITH_TENSORFLOW if name <= _LAST_TENSORFLOW else _BACKENDS,
        tensorrt,
        pytorch,
    )


RELEASES = tuple(map(_read, _TABLE.strip().splitlines()))
"""From the oldest to the newest."""


def find_release(name: str) -> Release:
    """Return the release that is called `name`, like `24.10`.

    Raises:
        UsageProblem: it is none that is known; names the nearest.
    """
    known = {release.name: release for release in RELEASES}
    found = known.get(name.strip())
    if found is None:
        raise _unknown(name, known, "release", "write it like 24.10")
    return found


def release_of_server(version: str) -> Release:
    """Return the release of a server that says it is `version`, like `2.51.0`.

    Raises:
        UsageProblem: it is none that is known; names the nearest.
    """
    known = {release.server: release for release in RELEASES}
    found = known.get(version.strip())
    if found is None:
        raise _unknown(version, known, "server", "the server's metadata has it, like 2.51.0")
    return found


def _unknown(text: str, known: dict[str, Release], what: str, how: str) -> UsageProblem:
    near = _nearest(text, list(known))
    first, *_, last = known
    remedy = f"Known are {first} to {last}; {how}."
    if near is not None:
        release = known[near]
        remedy = (
            f"The nearest that is known is {release.name}, of server {release.server}. {remedy}"
        )
    return UsageProblem(f"It is not known what Triton's {what} {text!r} ships.", remedy=remedy)


def _nearest(text: str, known: list[str]) -> str | None:
    """Return the known version that stands nearest in their order; None if `text` is no version."""
    if re.match(r"\d+\.\d+", text.strip()) is None:
        return None
    older = [version for version in known if _parts(version) <= _parts(text)]
    return older[-1] if older else known[0]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
