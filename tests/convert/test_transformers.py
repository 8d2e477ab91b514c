"""Loading from transformers: what is built, what is kept between loads, and what is refused."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tconv.convert.base import Arrays, SourceRequest
from tconv.convert.torch_model import TorchModel
from tconv.convert.transformers import SOURCE
from tconv.convert.transformers_sizes import narrow
from tconv.errors import Unavailable, UsageProblem
from tconv.spec import parse_signature

pytest.importorskip("transformers")

BERT = {
    "model_type": "bert",
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
    "pad_token_id": 5,
}
MIXTRAL = {
    "model_type": "mixtral",
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 37,
    "num_local_experts": 2,
}

Load = Callable[..., TorchModel]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a folder with this config; `text` is what the config file holds instead."""

    def load(config: dict[str, Any], text: str | None = None, **request: Any) -> TorchModel:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config) if text is None else text)
        asked = {"random_weights": True, "device": "cpu", **request}
        return SOURCE.load(SourceRequest(str(folder), **asked), tmp_path / "kept")

    return load


def _feeds(model: TorchModel) -> Arrays:
    shapes = [spec.sized({"batch": 2, "sequence": 4}) for spec in model.signature.inputs]
    return {
        name: np.ones(shape, np.int64)
        for name, shape in zip(model.signature.input_names, shapes, strict=True)
    }


@pytest.mark.parametrize(
    ("model", "claimed"),
    [
        ("gpt2", True),
        ("org/name", True),
        ("a/b/c", False),
        ("file.py:make", False),
        ("package.module:make", False),
    ],
    ids=["type", "hub id", "path", "file", "module"],
)
def test_claims_ids_and_nothing_else(model: str, claimed: bool) -> None:
    assert SOURCE.claims(model) is claimed


def test_a_later_load_gives_the_same_weights(load: Load) -> None:
    first, second = load(BERT), load(BERT)
    assert first.fingerprint() == second.fingerprint()
    assert first.signature == second.signature
    assert first.padding == 5


@pytest.mark.parametrize(
    ("config", "request_"),
    [({**BERT, "hidden_size": 16}, {}), (BERT, {"seed": 1})],
    ids=["another config", "another seed"],
)
def test_what_was_kept_is_not_used_for_something_else(
    load: Load, config: dict[str, Any], request_: dict[str, Any]
) -> None:
    assert load(BERT).fingerprint() != load(config, **request_).fingerprint()


@pytest.mark.parametrize(
    ("config", "task", "output"),
    [
        ({**BERT, "architectures": ["BertForMaskedLM"]}, None, "logits"),
        ({**BERT, "architectures": ["BertModel"]}, None, "last_hidden_state"),
        ({**BERT, "architectures": ["BertModel"]}, "question-answering", "start_logits"),
        ({**BERT, "architectures": ["NoSuchModel"]}, None, "logits"),
        (BERT, None, "logits"),
    ],
    ids=["a head", "no head", "a task", "an unknown head", "none stated"],
)
def test_the_class_is_the_tasks_or_the_configs_or_the_first_that_fits(
    load: Load, config: dict[str, Any], task: str | None, output: str
) -> None:
    model = load(config, task=task)
    assert next(iter(model.run(_feeds(model)))) == output


def test_the_users_inputs_are_taken_as_they_are(load: Load) -> None:
    model = load(BERT, inputs=("input_ids:int64[batch,sequence=2..9]",))
    assert [str(spec) for spec in model.signature.inputs] == [
        "input_ids:int64[batch,sequence=2..9]"
    ]
    assert model.batch_declared
    assert model.signature.inputs[0].domain is not None
    assert model.signature.inputs[0].domain.high == 98


def test_experts_are_computed_one_by_one_but_all_of_them_for_a_graph(load: Load) -> None:
    model = load(MIXTRAL)
    config = model.flat.module.config
    assert config._experts_implementation == "eager"
    before = model.run(_feeds(model))
    model.for_export()
    assert config._experts_implementation == "batched_mm"
    np.testing.assert_allclose(model.run(_feeds(model))["logits"], before["logits"], atol=1e-6)


@pytest.mark.parametrize(
    ("config", "text", "request_", "problem"),
    [
        pytest.param(BERT, None, {"random_weights": False}, "no file named", id="no weights"),
        pytest.param(BERT, '{"model_type":', {}, "not a valid JSON file", id="broken config"),
        pytest.param({"hidden_size": 32}, None, {}, "model_type", id="no type"),
        pytest.param({"model_type": "dragon"}, None, {}, "dragon", id="unknown type"),
        pytest.param(
            {**BERT, "hidden_size": "wide"}, None, {}, "'hidden_size': TypeError", id="wrong type"
        ),
        pytest.param({**BERT, "hidden_size": 30}, None, {}, "multiple of", id="contradiction"),
        pytest.param(
            BERT, None, {"task": "dancing"}, "no task called 'dancing'", id="no such task"
        ),
        pytest.param(
            BERT, None, {"task": "ctc"}, "A bert model can't do ctc", id="a task of others"
        ),
        pytest.param(
            BERT, None, {"inputs": ("words:int64[batch]",)}, "called 'words'", id="unknown input"
        ),
        pytest.param(
            {"model_type": "dragon", "auto_map": {"AutoConfig": "dragon.Config"}},
            None,
            {},
            "Python code of its own",
            id="remote code",
        ),
    ],
)
def test_refuses(
    load: Load, config: dict[str, Any], text: str | None, request_: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageProblem, match=problem) as refused:
        load(config, text, **request_)
    assert refused.value.remedy
    assert "\n" not in refused.value.problem


def test_weights_without_the_tasks_head_are_refused(load: Load, tmp_path: Path) -> None:
    made = load({**BERT, "architectures": ["BertModel"]})
    made.flat.module.save_pretrained(tmp_path / "trained")
    request = SourceRequest(str(tmp_path / "trained"), device="cpu", task="token-classification")
    with pytest.raises(UsageProblem, match="lack 2 that a BertForTokenClassification has"):
        SOURCE.load(request, tmp_path / "other")


def test_weights_that_are_no_file_of_weights_are_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_text("version https://git-lfs")
    with pytest.raises(UsageProblem, match="can't be loaded"):
        load(BERT, random_weights=False)


def test_without_a_hub_an_unknown_id_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    start = time.monotonic()
    with pytest.raises(Unavailable, match="hub can't be reached and 'nobody/nothing'"):
        SOURCE.load(SourceRequest("nobody/nothing"), tmp_path)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("smallest", "largest", "expected"),
    [
        pytest.param(1, 128, (1, 128), id="all"),
        pytest.param(3, 128, (3, 128), id="not the smallest"),
        pytest.param(1, 64, (1, 64), id="not the largest"),
        pytest.param(5, 77, (5, 77), id="neither"),
        pytest.param(40, 50, (1, 128), id="not even usual ones"),
    ],
)
def test_sizes_are_cut_down_to_what_runs(
    smallest: int, largest: int, expected: tuple[int, int]
) -> None:
    def run(feeds: Arrays) -> None:
        assert feeds["x"].shape == feeds["mask"].shape
        if not smallest <= feeds["x"].shape[1] <= largest:
            raise IndexError

    signature = parse_signature(["x:int64[batch,n=1..128]", "mask:int64[batch,n=1..128]"])
    axis = narrow(signature, run).axes["n"]
    assert (axis.min, axis.max) == expected


def test_an_axis_of_which_one_size_runs_is_none() -> None:
    def run(feeds: Arrays) -> None:
        if feeds["x"].shape[1] != 16:
            raise IndexError

    found = narrow(parse_signature(["x:int64[batch,n=1..128]"]), run)
    assert [str(spec) for spec in found.inputs] == ["x:int64[batch,16]"]


OWN_CODE = """
import torch
from transformers import PreTrainedConfig, PreTrainedModel


class Config(PreTrainedConfig):
    model_type = "dragon"
    vocab_size = 99
    max_position_embeddings = 40


class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, 4)
        self.post_init()

    def forward(self, input_ids):
        return {"logits": self.embed(input_ids)}
"""


def test_code_of_its_own_runs_where_it_is_trusted(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # transformers copies such code there, and looks for it on the path.
    cache = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", cache)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "dragon.py").write_text(OWN_CODE)
    names = {"AutoConfig": "dragon.Config", "AutoModelForCausalLM": "dragon.Model"}
    config = {"model_type": "dragon", "auto_map": names}
    with pytest.raises(UsageProblem, match="code of its own"):
        load(config)
    model = load(config, trust_remote_code=True)
    assert [str(spec) for spec in model.signature.inputs] == [
        "input_ids:int64[batch,sequence=1..40]"
    ]
    assert model.run(_feeds(model))["logits"].shape == (2, 4, 4)
    assert load(config, trust_remote_code=True).fingerprint() == model.fingerprint()
