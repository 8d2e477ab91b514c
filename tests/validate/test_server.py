from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tconv.artifact import Artifact, list_files
from tconv.errors import Unavailable
from tconv.export.config import ConfigOptions, render_config
from tconv.export.repository import export_version
from tconv.export.triton import LocalTriton
from tconv.report import Batching
from tconv.spec import Signature, parse_tensor
from tconv.validate.server import TritonRunner

pytestmark = [pytest.mark.serve, pytest.mark.timeout(60)]

TYPES = {
    "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "int64": TensorProto.INT64,
    "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE,
}  # fmt: skip
SHAPES = {"batched": ("[batch]", "[batch,2]"), "unbatched": ("[]", "[2]")}


def _signature(kind: str) -> Signature:
    texts = [f"{dtype}{n}:{dtype}{s}" for dtype in TYPES for n, s in enumerate(SHAPES[kind])]
    return Signature(
        tuple(parse_tensor(text) for text in texts),
        tuple(parse_tensor(f"out/{text}") for text in texts),
    )


def _identity(folder: Path, signature: Signature) -> Artifact:
    inputs, outputs = (
        [
            helper.make_tensor_value_info(
                spec.name, TYPES[spec.dtype], [getattr(dim, "name", dim) for dim in spec.shape]
            )
            for spec in specs
        ]
        for specs in (signature.inputs, signature.outputs)
    )
    nodes = [
        helper.make_node("Identity", [a.name], [b.name])
        for a, b in zip(inputs, outputs, strict=True)
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return Artifact("onnx", "r", list_files(folder), signature)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return {kind: _identity(tmp_path_factory.mktemp(kind), _signature(kind)) for kind in SHAPES}


@pytest.fixture(scope="module")
def server(
    triton: Callable[..., LocalTriton], tmp_path_factory: Any, artifacts: dict[str, Artifact]
) -> LocalTriton:
    repository = tmp_path_factory.mktemp("models") / "models"
    for kind, artifact in artifacts.items():
        config = render_config(
            kind,
            artifact,
            "onnxruntime_onnx",
            Batching(4 if kind == "batched" else 0, "it has no batch"),
            ConfigOptions(),
            1,
        )
        source = tmp_path_factory.mktemp("source")
        export_version(repository, kind, _identity(source, artifact.signature), source, config)
    return triton(repository)


def _runner(server: LocalTriton, artifact: Artifact, kind: str, protocol: Any) -> TritonRunner:
    url = server.grpc_url if protocol == "grpc" else server.http_url
    return TritonRunner(url, kind, 1, artifact, batched=kind == "batched", protocol=protocol)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("kind", SHAPES)
def test_dtypes_and_ranks_come_back_as_they_were(
    server: LocalTriton, artifacts: dict[str, Artifact], kind: str, protocol: str
) -> None:
    artifact = artifacts[kind]
    rows = {
        spec.name: np.arange(np.prod(spec.sized({"batch": 3}), dtype=int))
        .reshape(spec.sized({"batch": 3}))
        .astype(spec.dtype)
        for spec in artifact.signature.inputs
    }
    with _runner(server, artifact, kind, protocol) as runner:
        answer = runner(rows)
    assert list(answer) == list(artifact.signature.output_names)
    for name, sent in rows.items():
        got = answer[f"out/{name}"]
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert (got == sent).all()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_refusal_is_raised_as_the_client_has_it(
    server: LocalTriton, artifacts: dict[str, Artifact], protocol: str
) -> None:
    from tritonclient.utils import InferenceServerException

    artifact = artifacts["batched"]
    rows = {s.name: np.ones(s.sized({"batch": 5}), s.dtype) for s in artifact.signature.inputs}
    with (
        _runner(server, artifact, "batched", protocol) as runner,
        pytest.raises(InferenceServerException, match="batch"),
    ):
        runner(rows)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(("listens", "said"), [(False, "reached"), (True, "in time")])
def test_a_server_that_does_not_answer_is_unavailable(
    artifacts: dict[str, Artifact], protocol: Any, listens: bool, said: str
) -> None:
    artifact = artifacts["unbatched"]
    rows = {spec.name: np.ones(spec.sized({}), spec.dtype) for spec in artifact.signature.inputs}
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if listens:
            sock.listen()
        url = f"127.0.0.1:{sock.getsockname()[1]}"
        with (
            TritonRunner(
                url, "m", 1, artifact, batched=False, protocol=protocol, timeout=1
            ) as runner,
            pytest.raises(Unavailable, match=said),
        ):
            runner(rows)
