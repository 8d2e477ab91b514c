"""More models of each kind of trap, and what may stand at a model's ends or inside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tconv.convert.base import ConvertOptions
from tconv.errors import TconvError, UsageProblem
from tconv.report import Failed, NotConverted, Passed, Report

from .conftest import Build

pytestmark = pytest.mark.timeout(120)
SLOW = pytest.mark.slow


def _batch(report: Report) -> int:
    assert report.prepared is not None
    return report.prepared.batching.max_size


def _ends(report: Report) -> str:
    """Return the inputs and outputs as one line."""
    assert report.prepared is not None
    signature = report.prepared.signature
    return " ".join(map(str, (*signature.inputs, "->", *signature.outputs)))


@pytest.mark.parametrize(
    ("model", "batch", "ends"),
    [
        ("batches:expanded_token", 8, "x:float32[batch=1..8,4] -> output:float32[batch=1..8,6]"),
        ("batches:running_sum", 0, "x:float32[n=1..8,4] -> output:float32[n=1..8,4]"),
        pytest.param("batches:softmax_of_rows", 0, "", marks=SLOW),
        pytest.param("batches:numbered_rows", 0, "", marks=SLOW),
        pytest.param("batches:reversed_rows", 0, "", marks=SLOW),
        pytest.param("batches:live_batch_norm", 0, "", marks=SLOW),
        ("batches:transposed", 0, "x:float32[n=1..8,4] -> output:float32[4,n=1..8]"),
        ("batches:folded", 0, "x:float32[n=1..8,4] -> output:float32[output_dim0,2]"),
        ("batches:selected_rows", 0, "x:float32[n=1..8,4] -> output:float32[output_dim0,4]"),
        ("batches:hard_coded_size", 0, "x:float32[3,4] -> output:float32[3,2]"),
        (
            "batches:constant_output",
            0,
            "x:float32[n=1..8,4] -> output_0:float32[n=1..8,4] output_1:float32[8]",
        ),
        (
            "batches:hidden_state",
            0,
            "x:float32[n=1..8,6,4] -> output_0:float32[n=1..8,6,5] output_1:float32[1,n=1..8,5]",
        ),
        pytest.param("branches:written_with_where", 8, "", marks=SLOW),
        (
            "outputs:dataclass_output",
            8,
            "x:float32[batch=1..8,4] -> logits:float32[batch=1..8,3] "
            "parts_0:float32[batch=1..8,3] parts_1:float32[batch=1..8,3]",
        ),
        pytest.param("outputs:namedtuple_output", 8, "", marks=SLOW),
        (
            "outputs:deep_output",
            8,
            "x:float32[batch=1..8,4] -> output_0_a_0:float32[batch=1..8,3] "
            "output_0_a_1_b:float32[batch=1..8,3] output_1:float32[batch=1..8,3]",
        ),
        pytest.param("outputs:numbered_keys", 8, "", marks=SLOW),
        (
            "outputs:awkward_keys",
            8,
            "x:float32[batch=1..8,4] -> class scores:float32[batch=1..8,3] "
            "a/b.c:float32[batch=1..8,3]",
        ),
        (
            "outputs:named_like_the_input",
            8,
            "x:float32[batch=1..8,4] -> x_out:float32[batch=1..8,3] y:float32[batch=1..8,3]",
        ),
        pytest.param("outputs:number_beside", 8, "", marks=SLOW),
        ("outputs:nan_output", 8, ""),
        pytest.param("outputs:infinite_mask", 8, "", marks=SLOW),
        (
            "outputs:whole_numbers",
            8,
            "x:float32[batch=1..8,4] -> output_0:int64[batch=1..8] output_1:int64[batch=1..8,3] "
            "output_2:bool[batch=1..8,3] output_3:int32[batch=1..8,3]",
        ),
        pytest.param("outputs:small_whole_numbers", 8, "", marks=SLOW),
        pytest.param("outputs:sorted_pair", 8, "", marks=SLOW),
        pytest.param("outputs:not_contiguous", 8, "", marks=SLOW),
        pytest.param("outputs:half_output", 8, "", marks=SLOW),
        pytest.param("outputs:double_output", 8, "", marks=SLOW),
        pytest.param("outputs:many_outputs", 8, "", marks=SLOW),
        pytest.param("outputs:changes_its_input", 8, "", marks=SLOW),
        ("inputs:uint8_image", 8, ""),
        pytest.param("inputs:int32_ids", 8, "", marks=SLOW),
        pytest.param("inputs:huge_numbers", 8, "", marks=SLOW),
        pytest.param("inputs:bool_input", 8, "", marks=SLOW),
        pytest.param("inputs:double_model", 8, "", marks=SLOW),
        pytest.param("inputs:half_model", 8, "", marks=SLOW),
        pytest.param("inputs:column_beside_matrix", 8, "", marks=SLOW),
        ("inputs:two_batches", 0, "a:float32[2,4] b:float32[3,4] -> output:float32[2,3]"),
        ("inputs:positional_only", 8, ""),
        pytest.param("inputs:open_ended", 8, "", marks=SLOW),
        ("inputs:variadic", 8, ""),
        pytest.param("inputs:optional_input", 8, "", marks=SLOW),
        pytest.param("inputs:number_as_example", 8, "", marks=SLOW),
        pytest.param("inputs:example_alone", 8, "", marks=SLOW),
        pytest.param("inputs:numpy_example", 8, "", marks=SLOW),
        ("inputs:views_as_examples", 8, ""),
        pytest.param("inputs:empty_example", 8, "", marks=SLOW),
        pytest.param("inputs:nan_example", 8, "", marks=SLOW),
        ("modules:counts_calls", 8, ""),
        ("modules:compiled_module", 8, ""),
        pytest.param("modules:compiled_inside", 8, "", marks=SLOW),
        pytest.param("modules:in_training_mode", 8, "", marks=SLOW),
        pytest.param("modules:weight_norm", 8, "", marks=SLOW),
        pytest.param("modules:tied_weights", 8, "", marks=SLOW),
        pytest.param("modules:complex_inside", 8, "", marks=SLOW),
    ],
    ids=lambda value: value if ":" in str(value) and "->" not in str(value) else "",
)
def test_a_right_model_passes(build_model: Build, model: str, batch: int, ends: str) -> None:
    report = build_model(model)

    problems = [getattr(target.verdict, "problem", "") for target in report.targets]
    assert report.exit_code == 0, problems
    assert _batch(report) == batch
    assert not ends or _ends(report) == ends
    names = {target.artifact.signature.output_names for target in report.targets if target.artifact}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("model", "inputs", "line"),
    [
        ("batches:stacked_rows", (), "batches.py:30"),
        pytest.param("batches:zeros_of_length", (), "batches.py:35", marks=SLOW),
        pytest.param("batches:repeated_by_number", (), "batches.py:45", marks=SLOW),
        ("batches:through_numpy", (), "batches.py:55"),
        pytest.param("batches:through_item", (), "batches.py:60", marks=SLOW),
        pytest.param("batches:even_or_odd", (), "batches.py:65", marks=SLOW),
        ("batches:only_large_differs", (), "batches.py:70"),
        ("batches:short_or_long", ("x:float32[batch,seq=2..40]",), "batches.py:150"),
        ("branches:nested_branch", (), "branches.py:14"),
        pytest.param("branches:value_loop", (), "branches.py:29", marks=SLOW),
        ("branches:bool_branch", (), "branches.py:41"),
        pytest.param("branches:scriptable_branch", (), "branches.py:61", marks=SLOW),
        pytest.param("branches:number_taken_out", (), "branches.py:73", marks=SLOW),
    ],
    ids=lambda value: value if isinstance(value, str) and value.count(":") == 1 else "",
)
def test_what_a_trace_freezes_fails_with_its_line(
    build_model: Build, model: str, inputs: tuple[str, ...], line: str
) -> None:
    report = build_model(model, *inputs)

    assert report.exit_code == 1
    for target in report.targets:
        assert isinstance(target.verdict, Failed)
        assert line in target.verdict.problem
        assert target.exported is None


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("outputs:colliding_keys", r"Several outputs would be called \['a_b'\]"),
        ("outputs:nothing_at_all", "returns no tensor but tuple"),
        ("outputs:no_tensor", "returns no tensor but float"),
        ("outputs:opaque_object", "returns no tensor but _Opaque"),
        ("outputs:complex_output", "The output 'output' is a strided tensor of complex64"),
        ("outputs:sparse_output", "The output 'output' is a sparse_coo tensor"),
        ("inputs:tuple_input", "'pair' is no tensor but tuple"),
        ("inputs:missing_example", "needs the input 'scale' too"),
        ("inputs:unknown_example", "no input called 'mask'"),
        ("inputs:complex_example", "The example input 'x' is a strided tensor of complex64"),
        ("modules:on_meta_device", "'weight' is on the meta device"),
        ("modules:not_initialised", "'weight' is not initialised"),
        ("modules:keras_like", "returned a dict"),
        ("modules:half_weights_float_input", "The source itself can't run"),
    ],
    ids=lambda value: value if value.count(":") == 1 and " " not in value else "",
)
def test_what_no_target_could_take_is_refused_at_once(
    build_model: Build, model: str, problem: str
) -> None:
    with pytest.raises(UsageProblem, match=problem) as refused:
        build_model(model)

    assert refused.value.exit_code == 2
    assert refused.value.remedy


@pytest.mark.parametrize("model", ["modules:remembers", "modules:draws_little"])
def test_a_model_that_differs_from_itself_is_stochastic(build_model: Build, model: str) -> None:
    with pytest.raises(TconvError, match="stochastic") as refused:
        build_model(model)

    assert refused.value.exit_code == 1


@pytest.mark.parametrize(
    ("model", "torchscript", "onnx", "code"),
    [
        ("batches:only_a_sum", "no dimensions", "", 4),
        ("inputs:scalar_input", "no dimensions", "", 4),
        ("outputs:empty_output", "is empty", "is empty", 4),
        ("inputs:bfloat16_inside", "bfloat16", "", 4),
        ("modules:script_module", "", "is TorchScript already", 4),
        pytest.param("modules:traced_module", "", "is TorchScript already", 4, marks=SLOW),
        (
            "modules:custom_operator",
            "Unknown builtin op: tconv_tests::triple",
            "tconv_tests::triple",
            1,
        ),
        ("modules:quantised", "", "quantized", 4),
    ],
    ids=lambda value: value if ":" in str(value) and " " not in str(value) else "",
)
def test_one_target_refuses_and_the_other_goes_on(
    build_model: Build, model: str, torchscript: str, onnx: str, code: int
) -> None:
    report = build_model(model)

    assert report.exit_code == code
    for target, problem in zip(report.targets, (torchscript, onnx), strict=True):
        if problem:
            assert isinstance(target.verdict, NotConverted | Failed)
            assert problem in target.verdict.problem
            assert target.exported is None
        else:
            assert isinstance(target.verdict, Passed)
            assert target.exported is not None


def test_a_script_keeps_the_branch(build_model: Build) -> None:
    report = build_model(
        "branches:scriptable_branch", targets="torchscript", convert=ConvertOptions(script=True)
    )

    assert report.exit_code == 0
    assert _batch(report) == 0


def test_a_number_as_example_is_frozen(build_model: Build) -> None:
    report = build_model("inputs:number_as_example", targets="torchscript")

    assert report.prepared is not None
    assert report.prepared.frozen == {"bias": "None", "times": "3"}


def test_a_frozen_branch_that_no_sample_reaches_is_no_pass(build_model: Build) -> None:
    report = build_model("branches:rare_branch")
    assert report.exit_code == 1
    assert report.prepared is not None
    assert list(report.prepared.one_sided.values()) == [False]
    for target in report.targets:
        assert isinstance(target.verdict, Failed), target
        assert "branches.py:" in target.verdict.problem
        assert "in all samples its condition was false" in target.verdict.problem
        assert "torch.where" in target.verdict.remedy


def test_a_branch_that_only_raises_needs_no_proof(build_model: Build) -> None:
    report = build_model("branches:checked_inputs", targets="torchscript")
    assert report.exit_code == 0, report.targets


def test_rows_that_take_the_other_way_show_what_was_frozen(
    build_model: Build, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3), 1e7, "float32"))
    report = build_model("branches:rare_branch", targets="torchscript", data=f"{tmp_path}/x.npy")
    assert report.prepared is not None
    assert not report.prepared.one_sided
    (target,) = report.targets
    assert isinstance(target.verdict, Failed)
    assert "of --data" in target.verdict.problem
