from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tconv.artifact import Artifact, File
from tconv.errors import ConversionError, TconvError, UsageProblem
from tconv.export.config import ConfigOptions, check_options, render_config, to_text
from tconv.export.names import LONGEST, fit_name, validate_name
from tconv.export.platforms import TRITON_TYPES, find_platform
from tconv.export.template import parse_config, read_template
from tconv.report import Batching
from tconv.spec import DTYPES, Axis, Signature, TensorSpec, parse_tensor

GOLDEN = Path(__file__).parent / "golden"
PLATFORMS = ("onnxruntime_onnx", "pytorch_libtorch", "tensorrt_plan")


def _artifact(
    inputs: list[str], outputs: list[str], wire: dict[str, str] | None = None, file: str = "model"
) -> Artifact:
    signature = Signature(tuple(map(parse_tensor, inputs)), tuple(map(parse_tensor, outputs)))
    return Artifact("t", "r", (File(file, 1, "0" * 64),), signature, wire or {})


SIMPLE = _artifact(["x:float32[batch,3,seq=1..9]"], ["y:float32[batch,4]"])
FIXED = _artifact(["x:float32[2,seq]"], ["y:float32[2]"])

CASES: dict[str, dict[str, Any]] = {
    "batched": {},
    "unbatched": {"artifact": FIXED, "batching": Batching(0, "the model mixes rows")},
    "rank_one_rows": {
        "artifact": _artifact(["ids:int64[batch]"], ["score:float32[batch]", "y:bool[batch,2]"])
    },
    "scalar": {
        "artifact": _artifact(["t:float32[]", "x:float32[3]"], ["loss:float32[]"]),
        "batching": Batching(0, "an input has no batch axis"),
    },
    "awkward_names": {
        "artifact": _artifact(
            ["in/put:0:float32[batch,1]", "größe:int32[batch,2]", "tab\t\\n:bool[batch,1]"],
            ['out"put:float64[batch,1]', "日本:float16[batch,axis]"],
        )
    },
    "torchscript_wire_names": {
        "artifact": _artifact(
            ["tokens:int64[batch,seq]", "mask:int64[batch,seq]"],
            ["logits:float32[batch,5]"],
            {"tokens": "INPUT__0", "mask": "INPUT__1", "logits": "OUTPUT__0"},
        ),
        "platform": "pytorch_libtorch",
    },
    "instances_and_preferred_sizes": {
        "options": ConfigOptions(
            preferred_batch_size=(2, 4), queue_delay=500, instance_count=2, instance_kind="gpu"
        ),
        "version": 7,
    },
    "tensorrt": {"platform": "tensorrt_plan"},
    "template": {
        "options": ConfigOptions(template=str(GOLDEN / "template.txt")),
        "has_gpu": True,
    },
}


def _render(
    artifact: Artifact = SIMPLE,
    platform: str = "onnxruntime_onnx",
    batching: Batching = Batching(8),  # noqa: B008
    options: ConfigOptions = ConfigOptions(),  # noqa: B008
    version: int = 1,
    **more: Any,
) -> Any:
    return render_config("model", artifact, platform, batching, options, version, **more)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    expected = (GOLDEN / f"{case}.pbtxt").read_text(encoding="utf-8")
    assert to_text(_render(**CASES[case])) == expected


def test_every_golden_file_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.pbtxt")} == set(CASES)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_platform_has_a_template_that_names_it(platform: str) -> None:
    template = read_template(None, platform)
    assert (template.platform, bool(template.backend)) == (platform, True)


def test_every_dtype_has_a_triton_type() -> None:
    assert tuple(TRITON_TYPES) == DTYPES


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
dims = st.one_of(st.integers(1, 2**40), st.builds(Axis, st.sampled_from(["batch", "seq", "n"])))


@st.composite
def _signatures(draw: st.DrawFn) -> Signature:
    found = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    specs = tuple(
        TensorSpec(name, draw(st.sampled_from(DTYPES)), tuple(draw(st.lists(dims, max_size=4))))
        for name in found
    )
    return Signature(specs[:-1], specs[-1:])


@settings(max_examples=60, deadline=None)
@given(_signatures(), st.integers(0, 64), st.booleans())
def test_what_is_written_reads_back_as_the_same(
    signature: Signature, size: int, wired: bool
) -> None:
    wire = {name: f"W__{name}" for name in signature.input_names} if wired else {}
    artifact = Artifact("onnx", "r", (), signature, wire)
    config = _render(artifact, batching=Batching(size, "" if size else "no"))
    read = parse_config(to_text(config), "config.pbtxt")
    assert read == config
    assert [t.name for t in read.input] == [artifact.wire(n) for n in signature.input_names]
    assert [t.name for t in read.output] == list(signature.output_names)
    specs = (*signature.inputs, *signature.outputs)
    assert read.max_batch_size == (size if all(spec.is_batched for spec in specs) else 0)
    for tensor, spec in zip((*read.input, *read.output), specs, strict=True):
        assert tensor.dims
        assert 0 not in tensor.dims
        full = [*([-1] if read.max_batch_size else []), *tensor.dims]
        right = [-1 if isinstance(dim, Axis) else dim for dim in spec.shape]
        assert full == right or (full == [*right, 1] and len(right) == (read.max_batch_size > 0))
        assert tensor.HasField("reshape") == (full != right and read.max_batch_size > 0)


def test_one_tensor_without_batch_forbids_batches() -> None:
    config = _render(_artifact(["x:float32[batch,3]"], ["y:float32[4]"]))
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [-1, 3]
    assert "y:float32[4]" in config.parameters["tconv_not_batched"].string_value
    assert not config.HasField("dynamic_batching")


def test_a_smaller_batch_may_be_asked_for() -> None:
    config = _render(options=ConfigOptions(max_batch_size=4))
    assert (config.max_batch_size, [*config.dynamic_batching.preferred_batch_size]) == (4, [4])


@pytest.mark.parametrize(
    ("platform", "kind", "has_gpu", "expected"),
    [
        pytest.param("onnxruntime_onnx", "auto", False, "KIND_CPU", id="auto without GPU"),
        pytest.param("onnxruntime_onnx", "auto", True, "KIND_GPU", id="auto with GPU"),
        pytest.param("pytorch_libtorch", "cpu", True, "KIND_CPU", id="CPU asked for"),
        pytest.param("pytorch_libtorch", "gpu", False, "KIND_GPU", id="GPU asked for"),
        pytest.param("tensorrt_plan", "auto", False, "KIND_GPU", id="TensorRT is always GPU"),
    ],
)
def test_instance_kind(platform: str, kind: Any, has_gpu: bool, expected: str) -> None:
    config = _render(platform=platform, options=ConfigOptions(instance_kind=kind), has_gpu=has_gpu)
    (group,) = config.instance_group
    assert type(group).Kind.Name(group.kind) == expected


@pytest.mark.parametrize(
    ("platform", "tensor"),
    [
        pytest.param("pytorch_libtorch", "x:bfloat16[2]", id="libtorch bfloat16"),
        pytest.param("pytorch_libtorch", "x:uint16[2]", id="libtorch uint16"),
        pytest.param("pytorch_libtorch", "x:float32[]", id="libtorch scalar"),
        pytest.param("tensorrt_plan", "x:float64[2]", id="TensorRT float64"),
        pytest.param("tensorrt_plan", "x:float32[]", id="TensorRT scalar"),
        pytest.param("onnxruntime_onnx", "x:float32[2,0]", id="empty tensor"),
    ],
)
def test_a_tensor_that_cannot_be_served_is_named(platform: str, tensor: str) -> None:
    with pytest.raises(
        ConversionError, match=f"{tensor[0]}.*{find_platform(platform).name}|{tensor[0]}.*empty"
    ):
        _render(_artifact([tensor], ["y:float32[2]"]), platform, Batching(0, "no"))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_batched_scalar_needs_no_scalar_support(platform: str) -> None:
    config = _render(_artifact(["x:float32[batch]"], ["y:float32[batch]"]), platform)
    assert list(config.input[0].dims) == [1]
    assert config.input[0].HasField("reshape")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_batch_size": -1}, id="negative batch"),
        pytest.param({"max_batch_size": 2**31}, id="batch beyond int32"),
        pytest.param({"queue_delay": -1}, id="negative delay"),
        pytest.param({"instance_count": 0}, id="no instances"),
        pytest.param({"preferred_batch_size": (0,)}, id="preferred size 0"),
        pytest.param({"preferred_batch_size": (4, 9)}, id="preferred above the default"),
        pytest.param({"preferred_batch_size": (4,), "max_batch_size": 2}, id="preferred above max"),
        pytest.param({"preferred_batch_size": (1,), "max_batch_size": 0}, id="preferred unbatched"),
        pytest.param({"queue_delay": 0, "max_batch_size": 0}, id="delay unbatched"),
        pytest.param({"instance_kind": "cpu"}, id="TensorRT on a CPU"),
        pytest.param({"template": "/does/not/exist"}, id="missing template"),
        pytest.param({"template": "/"}, id="template is a folder"),
    ],
)
def test_wrong_options_are_refused_before_a_conversion(options: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        check_options(ConfigOptions(**options), PLATFORMS)


def test_good_options_are_not_refused() -> None:
    check_options(ConfigOptions())
    check_options(ConfigOptions(16, (4, 16), 0, 3, "gpu"), PLATFORMS)
    check_options(ConfigOptions(template=str(GOLDEN / "template.txt")), PLATFORMS[:1])


@pytest.mark.parametrize(
    ("batching", "options", "said"),
    [
        pytest.param(
            Batching(0, "rows are mixed"),
            ConfigOptions(queue_delay=5),
            "rows are mixed",
            id="delay",
        ),
        pytest.param(
            Batching(0, "rows are mixed"),
            ConfigOptions(preferred_batch_size=(2,)),
            "rows are mixed",
            id="preferred size",
        ),
        pytest.param(Batching(4), ConfigOptions(max_batch_size=8), "only 4", id="above proven"),
        pytest.param(Batching(4), ConfigOptions(preferred_batch_size=(8,)), "8", id="preferred"),
    ],
)
def test_options_that_the_artifact_cannot_keep(
    batching: Batching, options: ConfigOptions, said: str
) -> None:
    with pytest.raises(UsageProblem, match=said):
        _render(batching=batching, options=options)


def _template(folder: Path, text: str) -> ConfigOptions:
    path = folder / "template.pbtxt"
    path.write_text(text)
    return ConfigOptions(template=str(path))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        pytest.param('platform: "tensorrt_plan"', "platform", id="platform"),
        pytest.param('backend: "python"', "backend", id="backend"),
        pytest.param('name: "other"', "name", id="name"),
        pytest.param("max_batch_size: 9", "max_batch_size", id="max_batch_size"),
        pytest.param("max_batch_size: -1", "max_batch_size", id="negative max_batch_size"),
        pytest.param("version_policy { all {} }", "version_policy", id="version_policy"),
        pytest.param("ensemble_scheduling {}", "ensemble_scheduling", id="ensemble"),
        pytest.param('input { name: "x" dims: [4] }', "dims", id="dims"),
        pytest.param('input { name: "x" data_type: TYPE_INT8 }', "data_type", id="data_type"),
        pytest.param('input { name: "x" reshape {} }', "reshape", id="reshape"),
        pytest.param('output { name: "z" }', "output", id="unknown output"),
        pytest.param('default_model_filename: "m.onnx"', "default_model_filename", id="file"),
        pytest.param("dynamic_batching { preferred_batch_size: 9 }", "9", id="preferred size"),
        pytest.param('parameters { key: "tconv_x" value {} }', "tconv_x", id="reserved parameter"),
    ],
)
def test_a_contradicting_template_is_refused_by_field(
    tmp_path: Path, text: str, field: str
) -> None:
    with pytest.raises(UsageProblem, match=field):
        _render(options=_template(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"queue_delay": 1}, "max_queue_delay_microseconds: 2", id="delay"),
        pytest.param({"preferred_batch_size": (2,)}, "preferred_batch_size: 4", id="sizes"),
    ],
)
def test_an_option_and_a_template_must_agree(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    template = _template(tmp_path, f"dynamic_batching {{ {text} }}").template
    with pytest.raises(UsageProblem, match="differs"):
        _render(options=ConfigOptions(**options, template=template))


def test_dynamic_batching_in_a_template_needs_a_batch(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"dynamic_batching.*rows are mixed"):
        _render(
            batching=Batching(0, "rows are mixed"),
            options=_template(tmp_path, "dynamic_batching {}"),
        )


def test_a_malformed_template_is_refused_with_its_line(tmp_path: Path) -> None:
    options = _template(tmp_path, "max_batch_size: 8\ndynamic_batching { max_batch_size: 16 }\n")
    with pytest.raises(UsageProblem, match=r"line 2.*max_batch_size"):
        check_options(options)


def test_an_exported_config_serves_as_a_template(tmp_path: Path) -> None:
    first = _render(options=ConfigOptions(queue_delay=7))
    again = _render(options=_template(tmp_path, to_text(first)), version=2)
    first.version_policy.specific.versions[:] = [2]
    assert again == first


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        pytest.param("gpt2", "gpt2", id="as it is"),
        pytest.param("org/name v1.0", "org_name_v1.0", id="slash and space"),
        pytest.param("..hidden", "hidden", id="dots"),
        pytest.param("日本", "model", id="nothing left"),
        pytest.param("", "model", id="empty"),
        pytest.param("x" * 300, "x" * LONGEST, id="long"),
    ],
)
def test_names_are_made_fit(text: str, fit: str) -> None:
    assert fit_name(text) == validate_name(fit) == fit


@pytest.mark.parametrize("name", ["", ".x", "a/b", "..", "a b", "ü", "-x", "x" * 200, "a\n"])
def test_unfit_names_are_refused(name: str) -> None:
    with pytest.raises(UsageProblem):
        validate_name(name)


@given(st.text(max_size=200))
def test_a_fit_name_is_always_valid(text: str) -> None:
    assert validate_name(fit_name(text)) == fit_name(fit_name(text))


def test_errors_are_explained() -> None:
    with pytest.raises(TconvError) as caught:
        _render(platform="tensorrt_plan", options=ConfigOptions(instance_kind="cpu"))
    assert caught.value.remedy
    assert find_platform("tensorrt_plan").devices == ("gpu",)
    assert msgspec.json.decode(msgspec.json.encode(ConfigOptions()), type=ConfigOptions)
