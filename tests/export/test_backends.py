"""The stand-in backends on a real server: they answer and refuse as Triton's own do."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tconv.export.triton import LocalTriton

pytestmark = [pytest.mark.serve, pytest.mark.timeout(120)]

Shape = Sequence[int | str]


def _onnx(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Shape]],
    outputs: dict[str, tuple[int, Shape]],
    constants: Sequence[Any] = (),
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [helper.make_tensor_value_info(name, *of) for name, of in outputs.items()],
        list(constants),
    )
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, ir_version=10, opset_imports=[opset]).SerializeToString()


def _identity(dtype: int = TensorProto.FLOAT, shape: Shape = ("b", 3)) -> bytes:
    node = helper.make_node("Identity", ["x"], ["y"])
    return _onnx([node], {"x": (dtype, shape)}, {"y": (dtype, shape)})


def _batch_size() -> bytes:
    """Two inputs; `sum` adds them, `rows` tells each row how many ran together."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Shape", ["a"], ["rows_only"], end=1),
        helper.make_node("Concat", ["rows_only", "one"], ["shape"], axis=0),
        helper.make_node("Expand", ["rows_only", "shape"], ["rows"]),
    ]
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    kind: tuple[int, Shape] = (TensorProto.FLOAT, ("n", "width"))
    outputs: dict[str, tuple[int, Shape]] = {"sum": kind, "rows": (TensorProto.INT64, ("n", 1))}
    return _onnx(nodes, {"a": kind, "b": kind}, outputs, [one])


def _gather() -> bytes:
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    table = helper.make_tensor("table", TensorProto.FLOAT, [4], [0, 1, 4, 9])
    kinds: list[tuple[int, Shape]] = [(TensorProto.INT64, ("b", 2)), (TensorProto.FLOAT, ("b", 2))]
    return _onnx([node], {"x": kinds[0]}, {"y": kinds[1]}, [table])


def _squash() -> bytes:
    """Only ever one row, which its declared shape does not show."""
    node = helper.make_node("Compress", ["x", "first"], ["y"], axis=0)
    first = helper.make_tensor("first", TensorProto.BOOL, [1], [True])
    kind: tuple[int, Shape] = (TensorProto.FLOAT, ("b", "w"))
    return _onnx([node], {"x": kind}, {"y": kind}, [first])


def _scalar() -> bytes:
    node = helper.make_node("Neg", ["x"], ["y"])
    return _onnx([node], {"x": (TensorProto.FLOAT, ())}, {"y": (TensorProto.FLOAT, ())})


class _Subtract(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.full((left.shape[0], 1), left.shape[0], dtype=torch.int64)
        return left - right, rows


class _Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x < 0).any()):
            raise ValueError("negative")
        return x * 2


class _Dictionary(torch.nn.Module):
    def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
        return x["left"] - x["right"]


class _Shout(torch.nn.Module):
    def forward(self, words: list[str]) -> list[str]:
        return [word.upper() for word in words]


class _Listed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x, x]


class _Total(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


class _Flagged(torch.nn.Module):
    def forward(self, x: torch.Tensor, flag: bool) -> torch.Tensor:
        return x if flag else -x


def _torchscript(module: type[torch.nn.Module]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module()), buffer)
    return buffer.getvalue()


def _tensors(kind: str, tensors: dict[str, tuple[str, str]]) -> str:
    return "\n".join(
        f'{kind} {{ name: "{name}" data_type: {dtype} dims: {dims} }}'
        for name, (dtype, dims) in tensors.items()
    )


X, Y = {"x": ("TYPE_FP32", "[3]")}, {"y": ("TYPE_FP32", "[3]")}
WIDE = ("TYPE_FP32", "[-1]")
ONE_INSTANCE = "instance_group { kind: KIND_CPU count: 1 }"
GATHERED = ONE_INSTANCE + " dynamic_batching { max_queue_delay_microseconds: 400000 }"


def _config(
    inputs: dict[str, tuple[str, str]],
    outputs: dict[str, tuple[str, str]],
    batch: int = 8,
    more: str = ONE_INSTANCE,
) -> str:
    tensors = f"{_tensors('input', inputs)}\n{_tensors('output', outputs)}"
    return f"max_batch_size: {batch}\n{tensors}\n{more}"


IDENTITY = _identity()
DIFFERENCE = {"OUTPUT__0": WIDE, "OUTPUT__1": ("TYPE_INT64", "[1]")}
PAIR = {"left": WIDE, "right": WIDE}

GOOD = {
    "onnx-batches": (
        _batch_size(),
        _config({"a": WIDE, "b": WIDE}, {"sum": WIDE, "rows": ("TYPE_INT64", "[1]")}, 8, GATHERED),
    ),
    "onnx-two-instances": (
        IDENTITY,
        _config(X, Y, 8, "instance_group { kind: KIND_CPU count: 2 } dynamic_batching {}"),
    ),
    "onnx-gather": (
        _gather(),
        _config({"x": ("TYPE_INT64", "[2]")}, {"y": ("TYPE_FP32", "[2]")}, 8, GATHERED),
    ),
    "onnx-string": (
        _identity(TensorProto.STRING, ["b", "n"]),
        _config({"x": ("TYPE_STRING", "[-1]")}, {"y": ("TYPE_STRING", "[-1]")}),
    ),
    "onnx-bf16": (
        _identity(TensorProto.BFLOAT16),
        _config({"x": ("TYPE_BF16", "[3]")}, {"y": ("TYPE_BF16", "[3]")}),
    ),
    "onnx-scalar": (
        _scalar(),
        _config({"x": ("TYPE_FP32", "[1]")}, {"y": ("TYPE_FP32", "[1]")}, 0),
    ),
    "onnx-reshape": (
        _identity(shape=["b"]),
        "max_batch_size: 8"
        ' input { name: "x" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }'
        ' output { name: "y" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }' + ONE_INSTANCE,
    ),
    "onnx-squash": (
        _squash(),
        _config({"x": WIDE}, {"y": WIDE}),
    ),
    "onnx-renamed-file": (IDENTITY, _config(X, Y, 8, 'default_model_filename: "other.onnx"')),
    "torch-by-argument": (
        _Subtract,
        _config({"right": WIDE, "left": WIDE}, DIFFERENCE, 8, GATHERED),
    ),
    "torch-by-index": (_Subtract, _config({"IN__1": WIDE, "IN__0": WIDE}, {"OUTPUT__0": WIDE})),
    "torch-in-order": (_Subtract, _config({"p": WIDE, "q": WIDE}, {"first": WIDE})),
    "torch-missing-output": (_Subtract, _config(PAIR, {"OUTPUT__2": WIDE})),
    "torch-wrong-output": (_Double, _config(X, {"OUTPUT__0": ("TYPE_FP64", "[3]")})),
    "torch-raises": (_Double, _config(X, {"OUTPUT__0": ("TYPE_FP32", "[3]")})),
    "torch-dictionary": (_Dictionary, _config(PAIR, {"OUTPUT__0": WIDE})),
    "torch-string": (
        _Shout,
        _config({"words": ("TYPE_STRING", "[-1]")}, {"OUTPUT__0": ("TYPE_STRING", "[-1]")}, 0),
    ),
    "torch-list": (_Listed, _config(X, {"OUTPUT__0": ("TYPE_FP32", "[3]")})),
    "torch-total": (
        _Total,
        _config({"x": WIDE}, {"OUTPUT__0": ("TYPE_FP32", "[1]")}, 0),
    ),
}

# What the server must say of each model.
BAD = {
    "onnx-unknown-input": (
        IDENTITY,
        _config({"z": X["x"]}, Y),
        "unexpected inference input 'z', allowed inputs are: x",
    ),
    "onnx-unknown-output": (
        IDENTITY,
        _config(X, {"z": Y["y"]}),
        "unexpected inference output 'z', allowed outputs are: y",
    ),
    "onnx-missing-input": (
        _batch_size(),
        _config({"a": WIDE}, {"sum": WIDE}),
        "configuration expects 1 inputs, model provides 2: a, b",
    ),
    "onnx-input-dtype": (
        IDENTITY,
        _config({"x": ("TYPE_INT32", "[3]")}, Y),
        "expects datatype TYPE_INT32 for input 'x', model provides TYPE_FP32",
    ),
    "onnx-output-dtype": (
        IDENTITY,
        _config(X, {"y": ("TYPE_FP16", "[3]")}),
        "expects datatype TYPE_FP16 for output 'y', model provides TYPE_FP32",
    ),
    "onnx-dims": (
        IDENTITY,
        _config({"x": ("TYPE_FP32", "[4]")}, Y),
        "tensor 'x': the model expects 2 dimensions (shape [-1,3])",
    ),
    "onnx-rank": (
        IDENTITY,
        _config({"x": ("TYPE_FP32", "[3,1]")}, Y),
        "tensor 'x': the model expects 2 dimensions",
    ),
    "onnx-output-dims-must-be-exact": (
        _identity(shape=["b", "w"]),
        _config(X, Y),
        "tensor 'y': the model expects 2 dimensions (shape [-1,-1])",
    ),
    "onnx-fixed-batch": (
        _identity(shape=[1, 3]),
        _config(X, Y),
        "the first dimension must be -1; but shape expected by the model is [1,3]",
    ),
    "onnx-no-batch": (_scalar(), _config(X, Y), "should have at least 1 dimension"),
    "onnx-no-file": (None, _config(X, Y), "unable to find"),
    "onnx-no-onnx": (b"nothing", _config(X, Y), "onnx runtime error"),
    "onnx-gpu": (IDENTITY, _config(X, Y, 8, "instance_group { kind: KIND_GPU }"), "no GPU"),
    "onnx-sequence": (
        IDENTITY,
        _config(X, Y, 8, "sequence_batching {}"),
        "sequence_batching is not supported",
    ),
    "torch-missing-input": (
        _Subtract,
        _config({"left": WIDE}, DIFFERENCE),
        "configuration expects 1 inputs, model provides 2: left, right",
    ),
    "torch-index": (
        _Subtract,
        _config({"IN__0": WIDE, "IN__2": WIDE}, DIFFERENCE),
        "do not stand for one each",
    ),
    "torch-dtype": (
        _Double,
        _config({"x": ("TYPE_BF16", "[3]")}, {"OUTPUT__0": ("TYPE_FP32", "[3]")}),
        "unsupported datatype TYPE_BF16 for input 'x'",
    ),
    "torch-argument-kind": (
        _Flagged,
        _config({"x": WIDE, "flag": ("TYPE_BOOL", "[1]")}, {"OUTPUT__0": WIDE}),
        "an input of type 'bool'",
    ),
    "torch-string-rank": (
        _Shout,
        _config({"words": ("TYPE_STRING", "[-1]")}, {"OUTPUT__0": ("TYPE_STRING", "[-1]")}, 8),
        "only supports 1 dimensional List of String",
    ),
    "torch-no-torchscript": (b"nothing", _config(X, Y), "failed to load model"),
}


Model = bytes | type[torch.nn.Module] | None


def _write(repository: Path, name: str, model: Model, config: str) -> None:
    is_onnx = name.startswith("onnx")
    platform = "onnxruntime_onnx" if is_onnx else "pytorch_libtorch"
    filename = "model.onnx" if is_onnx else "model.pt"
    if "other.onnx" in config:
        filename = "other.onnx"
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(f'platform: "{platform}"\n{config}')
    if model is not None:
        content = model if isinstance(model, bytes) else _torchscript(model)
        (folder / "1" / filename).write_bytes(content)


@pytest.fixture(scope="module")
def server(
    triton: Callable[..., LocalTriton], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalTriton]:
    repository = tmp_path_factory.mktemp("backends")
    for name, (model, config) in GOOD.items():
        _write(repository, name, model, config)
    for name, (broken, config, _) in BAD.items():
        _write(repository, name, broken, config)
    running = triton(repository)
    yield running
    running.stop()


@pytest.fixture(params=["http", "grpc"])
def client(server: LocalTriton, request: pytest.FixtureRequest) -> Iterator[Any]:
    with _connect(server, request.param) as connected:
        yield connected


def _connect(server: LocalTriton, protocol: str) -> Any:
    if protocol == "http":
        return tritonclient.http.InferenceServerClient(server.http_url, concurrency=8)
    return tritonclient.grpc.InferenceServerClient(server.grpc_url)


def _infer(client: Any, model: str, outputs: Sequence[str] = (), **inputs: NDArray[Any]) -> Any:
    module = tritonclient.grpc if "grpc" in type(client).__module__ else tritonclient.http
    feeds = []
    for name, array in inputs.items():
        dtype = "BF16" if array.dtype == ml_dtypes.bfloat16 else np_to_triton_dtype(array.dtype)
        feeds.append(module.InferInput(name, list(array.shape), dtype))
        feeds[-1].set_data_from_numpy(array)
    wanted = [module.InferRequestedOutput(name) for name in outputs] or None
    return client.infer(model, feeds, outputs=wanted)


def _rows(*shape: int, start: float = 0.0) -> NDArray[np.float32]:
    return np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape)


# Loading


@pytest.mark.parametrize("name", GOOD)
def test_a_right_model_loads(server: LocalTriton, name: str) -> None:
    server.require(name)


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_model_is_refused_with_the_reason(server: LocalTriton, name: str) -> None:
    (model,) = [model for model in server.models() if model.name == name]
    assert not model.is_ready
    assert BAD[name][2] in model.reason
    assert "Traceback" not in model.reason


# Answering


def test_two_inputs_are_told_apart(client: Any) -> None:
    a, b = _rows(2, 3), _rows(2, 3, start=100)
    answer = _infer(client, "onnx-batches", a=a, b=b)
    np.testing.assert_array_equal(answer.as_numpy("sum"), a + b)
    np.testing.assert_array_equal(answer.as_numpy("rows"), [[2], [2]])


@pytest.mark.parametrize(
    ("model", "left", "right", "output"),
    [
        ("torch-by-argument", "left", "right", "OUTPUT__0"),
        ("torch-by-index", "IN__0", "IN__1", "OUTPUT__0"),
        ("torch-in-order", "p", "q", "first"),
        ("torch-dictionary", "left", "right", "OUTPUT__0"),
    ],
    ids=["by-argument", "by-index", "in-order", "dictionary"],
)
def test_torch_arguments_are_found(
    client: Any, model: str, left: str, right: str, output: str
) -> None:
    a, b = _rows(2, 3, start=7), _rows(2, 3) * 2
    answer = _infer(client, model, **{right: b, left: a})
    np.testing.assert_array_equal(answer.as_numpy(output), a - b)


def test_only_requested_outputs_come_back(client: Any) -> None:
    answer = _infer(client, "onnx-batches", ["rows"], a=_rows(1, 2), b=_rows(1, 2))
    assert answer.as_numpy("sum") is None
    assert answer.as_numpy("rows") is not None


def test_strings_are_texts(client: Any) -> None:
    words = np.array([["naïve", ""], ["日本", "z"]], object)
    answer = _infer(client, "onnx-string", x=np.char.encode(words.astype(str)).astype(object))
    assert [[word.decode() for word in row] for row in answer.as_numpy("y")] == words.tolist()
    shouted = _infer(client, "torch-string", words=np.array([b"a", b"bc"], object))
    assert shouted.as_numpy("OUTPUT__0").tolist() == [b"A", b"BC"]


def test_bfloat16_keeps_its_bits(client: Any) -> None:
    x = np.array([[1.5, -2.25, 3e38], [0, np.inf, 1e-30]], ml_dtypes.bfloat16)
    answer = _infer(client, "onnx-bf16", x=x).as_numpy("y")
    np.testing.assert_array_equal(answer.astype(np.float32), x.astype(np.float32))


def test_a_scalar_has_the_configured_shape(client: Any) -> None:
    answer = _infer(client, "onnx-scalar", x=np.array([4], np.float32))
    np.testing.assert_array_equal(answer.as_numpy("y"), [-4])


def test_a_reshape_is_undone(client: Any) -> None:
    answer = _infer(client, "onnx-reshape", x=_rows(3, 1))
    np.testing.assert_array_equal(answer.as_numpy("y"), _rows(3, 1))


def test_an_axis_may_be_empty(client: Any) -> None:
    empty = np.zeros((2, 0), np.float32)
    assert _infer(client, "onnx-batches", a=empty, b=empty).as_numpy("sum").shape == (2, 0)
    answer = _infer(client, "torch-by-argument", left=empty, right=empty)
    assert answer.as_numpy("OUTPUT__0").shape == (2, 0)


# Batches


@pytest.mark.parametrize(
    ("model", "names", "rows"),
    [
        ("onnx-batches", ("a", "b", "sum"), "rows"),
        ("torch-by-argument", ("left", "right", "OUTPUT__0"), "OUTPUT__1"),
    ],
    ids=["onnx", "torch"],
)
def test_requests_run_together_and_come_apart_again(
    server: LocalTriton, model: str, names: tuple[str, str, str], rows: str
) -> None:
    first, second, output = names
    sizes, widths = [1, 2, 3, 1, 1], [3, 3, 3, 5, 3]

    def ask(client: Any, index: int) -> tuple[NDArray[Any], NDArray[Any], int]:
        a = _rows(sizes[index], widths[index], start=1000 * index)
        answer = _infer(client, model, **{first: a, second: np.ones_like(a)})
        return a, answer.as_numpy(output), int(answer.as_numpy(rows)[0, 0])

    with ThreadPoolExecutor(len(sizes)) as threads, _connect(server, "grpc") as client:
        answers = list(threads.map(lambda index: ask(client, index), range(len(sizes))))
    for a, answer, _ in answers:
        np.testing.assert_array_equal(answer, a + 1 if model.startswith("onnx") else a - 1)
    together = [ran for _, _, ran in answers]
    assert max(together) > max(sizes), f"no batch was formed: {together}"
    assert together[3] == sizes[3], "a row of another width ran in a batch"


def test_two_instances_answer(server: LocalTriton) -> None:
    def ask(index: int) -> bool:
        x = _rows(1, 3, start=index)
        return bool((_infer(client, "onnx-two-instances", x=x).as_numpy("y") == x).all())

    with ThreadPoolExecutor(4) as threads, _connect(server, "grpc") as client:
        assert all(threads.map(ask, range(40)))


def test_outputs_without_the_batchs_rows_are_an_error(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="output 'y' has 1 rows for a batch of 2"):
        _infer(client, "onnx-squash", x=_rows(2, 3))


# Errors of a request


@pytest.mark.parametrize(
    ("model", "x", "says"),
    [
        ("onnx-gather", np.array([[1, 9]]), "out of"),
        ("torch-raises", -_rows(1, 3), "PyTorch execute failure"),
        ("torch-missing-output", _rows(1, 3), "This model has 2 outputs"),
        ("torch-wrong-output", _rows(1, 3), "TYPE_FP64 for output 'OUTPUT__0'.*TYPE_FP32"),
        ("torch-list", _rows(1, 3), "no List"),
        ("torch-total", _rows(3), "is a scalar which is not supported"),
    ],
    ids=["onnx-gather", "raises", "missing-output", "wrong-output", "list", "total"],
)
def test_an_error_is_answered(client: Any, model: str, x: Any, says: str) -> None:
    feeds = {"left": x, "right": x} if model == "torch-missing-output" else {"x": x}
    with pytest.raises(InferenceServerException, match=says):
        _infer(client, model, **feeds)


def test_a_request_after_an_error_is_answered(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="not UTF-8"):
        _infer(client, "onnx-string", x=np.array([[b"\xff"]], object))
    assert _infer(client, "onnx-string", x=np.array([[b"a"]], object)).as_numpy("y") == [[b"a"]]
    with pytest.raises(InferenceServerException):
        _infer(client, "onnx-gather", x=np.array([[1, 9]]))
    answer = _infer(client, "onnx-gather", x=np.array([[1, 3]]))
    np.testing.assert_array_equal(answer.as_numpy("y"), [[1, 9]])
