from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tconv.convert.onnx_graph import ONNX_DTYPES, finish, read_signature, unused_inputs
from tconv.errors import ConversionError, UsageProblem
from tconv.spec import DTYPES, Axis, Signature, TensorSpec, parse_tensor

SIGNATURE = Signature(
    (parse_tensor("x:float32[batch,3]"), parse_tensor("unused:int64[batch]")),
    (parse_tensor("y:float32[batch,3]"),),
)
Info = onnx.ValueInfoProto


def _info(name: str, shape: Sequence[Any] | None, dtype: int = TensorProto.FLOAT) -> Info:
    return helper.make_tensor_value_info(name, dtype, shape)


def _write(
    path: Path,
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    nodes: Sequence[onnx.NodeProto] | None = None,
    weights: dict[str, Any] | None = None,
) -> Path:
    graph = helper.make_graph(
        nodes if nodes is not None else [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        inputs,
        outputs,
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    path.write_bytes(model.SerializeToString())
    return path


X, Y = _info("x", ["batch", 3]), _info("y", ["batch", 3])
UNUSED = _info("unused", ["batch"], TensorProto.INT64)


def test_every_dtype_of_a_spec_has_one_of_onnx() -> None:
    assert set(ONNX_DTYPES.values()) == set(DTYPES)
    assert all(hasattr(TensorProto, name) for name in ONNX_DTYPES)


@pytest.mark.parametrize("dtype", ONNX_DTYPES)
def test_dtypes_are_read(tmp_path: Path, dtype: str) -> None:
    number = TensorProto.DataType.Value(dtype)
    path = _write(tmp_path / "m.onnx", [_info("x", [2], number)], [_info("y", [2], number)])
    spec = TensorSpec("x", ONNX_DTYPES[dtype], (2,))
    assert read_signature(path) == Signature((spec,), (TensorSpec("y", spec.dtype, (2,)),))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param([], (), id="scalar"),
        pytest.param([2, 0], (2, 0), id="an empty dimension"),
        pytest.param(["batch", 3], (Axis("batch"), 3), id="named"),
        pytest.param([None, 3], (Axis("x_dim0"), 3), id="nameless"),
        pytest.param(["2*n + 1"], (Axis("2*n + 1"),), id="a formula"),
    ],
)
def test_shapes_are_read(tmp_path: Path, shape: list[Any], expected: tuple[Any, ...]) -> None:
    path = _write(tmp_path / "m.onnx", [_info("x", shape)], [_info("y", shape)])
    assert read_signature(path).inputs[0].shape == expected


def test_weights_that_are_also_inputs_are_none(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    weights = {"w": np.array([1, 2, 3], "f")}
    path = _write(tmp_path / "m.onnx", [X, _info("w", [3])], [Y], [node], weights)
    assert read_signature(path).input_names == ("x",)


def _sequence() -> Info:
    return helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)


@pytest.mark.parametrize(
    ("info", "says"),
    [
        pytest.param(_sequence(), "'x' is no tensor", id="a sequence"),
        pytest.param(_info("x", [1], TensorProto.COMPLEX64), "COMPLEX64", id="complex"),
        pytest.param(_info("x", [1], TensorProto.FLOAT8E4M3FN), "FLOAT8E4M3FN", id="float8"),
        pytest.param(_info("x", None), "how many dimensions 'x' has", id="no shape"),
    ],
)
def test_ends_that_a_server_cannot_have(tmp_path: Path, info: Info, says: str) -> None:
    path = _write(tmp_path / "m.onnx", [info], [info])
    with pytest.raises(UsageProblem, match=says):
        read_signature(path)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _: None, id="no file"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"PK\x03\x04 zip"), id="a zip"),
        pytest.param(
            lambda path: path.write_bytes(_write(path, [X], [Y]).read_bytes()[:-9]), id="cut off"
        ),
        pytest.param(
            lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"),
            id="a git-lfs pointer",
        ),
    ],
)
def test_what_is_no_onnx_file(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "m.onnx")
    with pytest.raises(UsageProblem, match=r"m\.onnx"):
        read_signature(tmp_path / "m.onnx")


def test_an_input_that_the_exporter_dropped_is_put_back_in_its_place(tmp_path: Path) -> None:
    first = Signature(SIGNATURE.inputs[::-1], SIGNATURE.outputs)
    for signature in (SIGNATURE, first):
        path = _write(tmp_path / "m.onnx", [X], [Y])
        finish(path, signature)
        assert read_signature(path) == signature
        assert unused_inputs(path) == ["unused"]


def test_inputs_come_in_the_signatures_order(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", [UNUSED, X], [Y])
    finish(path, SIGNATURE)
    assert read_signature(path) == SIGNATURE


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(["s0", 3], id="a name of the exporter's"),
        pytest.param([None, None], id="no names"),
        pytest.param(None, id="no shape at all"),
    ],
)
def test_outputs_get_the_signatures_axes(tmp_path: Path, shape: list[Any] | None) -> None:
    path = _write(tmp_path / "m.onnx", [X, UNUSED], [_info("y", shape)])
    finish(path, SIGNATURE)
    assert read_signature(path) == SIGNATURE


def test_a_scalar_without_a_shape_gets_it(tmp_path: Path) -> None:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    path = _write(tmp_path / "m.onnx", [X], [_info("y", None)], [node])
    signature = Signature(SIGNATURE.inputs[:1], (parse_tensor("y:float32[]"),))
    finish(path, signature)
    assert read_signature(path) == signature


def test_a_size_that_the_exporter_froze_stays_visible(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", [X, UNUSED], [_info("y", [2, 3])])
    finish(path, SIGNATURE)
    assert read_signature(path).outputs[0].shape == (2, 3)


def test_a_right_file_is_not_written_again(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", [X, UNUSED], [Y])
    before = path.stat()
    finish(path, SIGNATURE)
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("outputs", "nodes", "says"),
    [
        pytest.param(
            [_info("z", ["batch", 3])],
            [helper.make_node("Identity", ["x"], ["z"])],
            r"outputs \['z'\] instead of \['y'\]",
            id="another output",
        ),
        pytest.param(
            [Y, _info("z", ["batch", 3])],
            [helper.make_node("Identity", ["x"], [n]) for n in "yz"],
            r"\['y', 'z'\] instead of",
            id="one more output",
        ),
        pytest.param(
            [Y], [helper.make_node("Identity", ["lost"], ["y"])], "breaks ONNX's rules", id="open"
        ),
        pytest.param([Y], [helper.make_node("Nonsense", ["x"], ["y"])], "breaks", id="operator"),
    ],
)
def test_what_the_exporter_wrote_wrongly(
    tmp_path: Path, outputs: list[Info], nodes: list[onnx.NodeProto], says: str
) -> None:
    path = _write(tmp_path / "m.onnx", [X, UNUSED], outputs, nodes)
    with pytest.raises(ConversionError, match=says):
        finish(path, SIGNATURE)


def test_inputs_that_only_a_branch_reads_are_used(tmp_path: Path) -> None:
    branches: dict[str, Any] = {
        name: helper.make_graph(
            [helper.make_node("Identity", [source], [name])],
            name,
            [],
            [_info(name, ["batch", 3])],
        )
        for name, source in (("then_branch", "x"), ("else_branch", "z"))
    }
    node = helper.make_node("If", ["flag"], ["y"], **branches)
    inputs = [X, _info("z", ["batch", 3]), _info("flag", [], TensorProto.BOOL), UNUSED]
    path = _write(tmp_path / "m.onnx", inputs, [Y], [node])
    onnx.checker.check_model(path)
    assert unused_inputs(path) == ["unused"]
