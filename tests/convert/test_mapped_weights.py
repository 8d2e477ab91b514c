from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from onnx_ir.tensor_adapters import TorchTensor

from tconv.convert.mapped_weights import Mapping, attach_weights, find_mappings, locate
from tconv.convert.onnx_from_torch import export_dynamo
from tconv.convert.onnx_graph import finish
from tconv.convert.torch_model import TorchModel
from tconv.spec import Signature, parse_signature, parse_tensor

A, B = Path("/a.safetensors"), Path("/b.safetensors")
MAPPINGS = [Mapping(100, 200, 0, A), Mapping(200, 300, 4096, A), Mapping(500, 600, 0, B)]


@pytest.mark.parametrize(
    ("address", "size", "place"),
    [
        pytest.param(100, 100, (A, 0), id="whole"),
        pytest.param(199, 1, (A, 99), id="last byte"),
        pytest.param(210, 10, (A, 4106), id="mapped from an offset"),
        pytest.param(500, 1, (B, 0), id="another file"),
        pytest.param(199, 2, None, id="across two mappings"),
        pytest.param(99, 1, None, id="before all"),
        pytest.param(300, 1, None, id="behind one"),
        pytest.param(700, 1, None, id="behind all"),
    ],
)
def test_locate(address: int, size: int, place: tuple[Path, int] | None) -> None:
    assert locate(MAPPINGS, address, size) == place


def test_nothing_is_mapped_nothing_is_found() -> None:
    assert locate([], 100, 1) is None


def _make() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel  # takes seconds, which collecting spares

    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "vocab_size": 128, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def _save(folder: Path, **options: Any) -> Path:
    _make().save_pretrained(folder, **options)
    return folder


def _load(folder: Path, **options: Any) -> Any:
    from transformers import GPT2LMHeadModel

    loaded: Any = GPT2LMHeadModel.from_pretrained(folder, **options)
    return loaded.eval()


def _graph(tensors: dict[str, Any]) -> Any:
    """Return an onnx-ir model that holds nothing but these weights."""
    values = [
        onnx_ir.Value(name=name, const_value=TorchTensor(tensor, name=name))
        for name, tensor in tensors.items()
    ]
    graph = onnx_ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 18}, name="g")
    return onnx_ir.Model(graph, ir_version=10)


def _attached(model: Any) -> dict[str, Any]:
    found = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {n: t for n, t in found.items() if isinstance(t, onnx_ir.ExternalTensor)}


def _check_bytes(model: Any, truth: dict[str, Any], folder: Path) -> None:
    """Read what every attached weight points at, past onnx-ir."""
    for name, tensor in _attached(model).items():
        content = (folder / tensor.location).read_bytes()
        there = np.frombuffer(content, np.float32, tensor.size, tensor.offset)
        assert np.array_equal(there.reshape(tuple(tensor.shape)), truth[name].numpy()), name


def test_weights_point_into_a_copy_of_their_file(tmp_path: Path) -> None:
    loaded = _load(_save(tmp_path / "model")).state_dict()
    model = _graph(loaded)
    (tmp_path / "out").mkdir()
    assert attach_weights(model, tmp_path / "out") == ["model.safetensors"]
    copied = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert copied == (tmp_path / "model" / "model.safetensors").read_bytes()
    attached = _attached(model)
    large = {name for name, tensor in loaded.items() if tensor.nbytes >= 1024}
    assert set(attached) == large
    # Tied weights are one place in the file.
    assert attached["lm_head.weight"].offset == attached["transformer.wte.weight"].offset
    _check_bytes(model, loaded, tmp_path / "out")


def test_sharded_weights_point_into_every_shard(tmp_path: Path) -> None:
    loaded = _load(_save(tmp_path / "model", max_shard_size="40KB")).state_dict()
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    model = _graph(loaded)
    (tmp_path / "out").mkdir()
    names = attach_weights(model, tmp_path / "out")
    assert len(names) == len(set(names)) > 1
    assert {tensor.location for tensor in _attached(model).values()} == set(names)
    _check_bytes(model, loaded, tmp_path / "out")


def test_the_hub_cache_is_seen_through_its_links(tmp_path: Path) -> None:
    folder = _save(tmp_path / "snapshots" / "main")
    (tmp_path / "blobs").mkdir()
    blob = tmp_path / "blobs" / ("0" * 64)
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(os.path.relpath(blob, folder))
    loaded = _load(folder).state_dict()
    model = _graph(loaded)
    (tmp_path / "out").mkdir()
    assert attach_weights(model, tmp_path / "out") == ["model.safetensors"]
    assert not (tmp_path / "out" / "model.safetensors").is_symlink()
    _check_bytes(model, loaded, tmp_path / "out")


def _is_refused(tensors: dict[str, Any], folder: Path) -> bool:
    model = _graph(tensors)
    folder.mkdir()
    return (
        attach_weights(model, folder) == [] and not _attached(model) and not any(folder.iterdir())
    )


def test_converted_weights_lie_in_no_file(tmp_path: Path) -> None:
    loaded = _load(_save(tmp_path / "model"), dtype=torch.float16)
    assert _is_refused(loaded.float().state_dict(), tmp_path / "out")


def test_a_half_precision_file_loaded_wide_lies_in_no_file(tmp_path: Path) -> None:
    _make().half().save_pretrained(tmp_path / "model")
    loaded = _load(tmp_path / "model", dtype=torch.float32)
    assert loaded.transformer.wte.weight.dtype == torch.float32
    assert _is_refused(loaded.state_dict(), tmp_path / "out")


def test_weights_that_are_in_no_file(tmp_path: Path) -> None:
    assert _is_refused(_make().state_dict(), tmp_path / "out")


def test_weights_that_were_changed_after_loading(tmp_path: Path) -> None:
    """They still lie where the file was mapped, but the file has other numbers."""
    loaded = _load(_save(tmp_path / "model"))
    with torch.no_grad():
        loaded.transformer.wte.weight[3].zero_()
    assert _is_refused(loaded.state_dict(), tmp_path / "out")


def test_transposed_weights_are_not_in_the_file_as_they_are(tmp_path: Path) -> None:
    loaded = _load(_save(tmp_path / "model")).state_dict()
    turned = {n: t.T if t.ndim == 2 else t for n, t in loaded.items()}
    assert _is_refused(turned, tmp_path / "out")


def test_a_file_of_which_little_is_used_is_not_copied(tmp_path: Path) -> None:
    loaded = _load(_save(tmp_path / "model")).state_dict()
    assert _is_refused({"wpe": loaded["transformer.wpe.weight"]}, tmp_path / "out")


def test_without_proc_nothing_is_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = _load(_save(tmp_path / "model")).state_dict()
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(OSError))
    assert find_mappings() == []
    assert _is_refused(loaded, tmp_path / "out")


@pytest.mark.filterwarnings("ignore")  # the exporter's own, which it would take for failures
def test_an_exported_model_works_wherever_its_folder_goes(tmp_path: Path) -> None:
    loaded = _load(_save(tmp_path / "model"))
    signature = Signature(
        parse_signature(["input_ids:int64[batch=1..4,seq=2..8]"]).inputs,
        (parse_tensor("logits:float32[batch=1..4,seq=2..8,128]"),),
    )
    ids = np.arange(15).reshape(3, 5)
    source = TorchModel(
        loaded,
        signature,
        examples={"input_ids": ids},
        batch_declared=True,
        constants={"use_cache": False},
    )
    expected = source.run({"input_ids": ids})["logits"]
    made = tmp_path / "out"
    made.mkdir()
    export_dynamo(source, signature, made / "model.onnx", None)
    finish(made / "model.onnx", signature)
    assert {path.name for path in made.iterdir()} == {"model.onnx", "model.safetensors"}
    graph = onnx.load(made / "model.onnx", load_external_data=False).graph
    outside = [t for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    assert len(outside) >= 5
    # The small matrix of the head was transposed, which no file has; nothing else is inside.
    assert sum(len(tensor.raw_data) for tensor in graph.initializer) < 20_000

    moved = Path(shutil.copytree(made, tmp_path / "elsewhere" / "größe"))
    shutil.rmtree(made)
    shutil.rmtree(tmp_path / "model")
    onnx.checker.check_model(moved / "model.onnx")
    session = onnxruntime.InferenceSession(moved / "model.onnx", providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"input_ids": ids})
    assert np.abs(actual - expected).max() < 1e-5
