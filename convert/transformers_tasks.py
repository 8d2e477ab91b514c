"""Which class of transformers a model is: the task's, the config's own, or the first that fits."""

from __future__ import annotations

from typing import Any

from ..errors import UsageProblem

TASKS = {
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
    "image-classification": "AutoModelForImageClassification",
    "ctc": "AutoModelForCTC",
    "zero-shot-image-classification": "AutoModelForZeroShotImageClassification",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "audio-classification": "AutoModelForAudioClassification",
    "object-detection": "AutoModelForObjectDetection",
    "image-segmentation": "AutoModelForSemanticSegmentation",
    "depth-estimation": "AutoModelForDepthEstimation",
    "feature-extraction": "AutoModel",
}
"""The pipelines' own names for a task, in the order they are tried where a config states none."""


def model_class(config: Any, task: str | None) -> Any:
    """Return the class to load.

    Raises:
        UsageProblem: an unknown task, or one that this type of model can't do.
    """
    import transformers

    if task is not None:
        return _class_for(task, config)
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    if own := [
        auto for auto in TASKS.values() if auto in (getattr(config, "auto_map", None) or {})
    ]:
        return getattr(transformers, own[0])
    return getattr(transformers, TASKS[_tasks_of(config)[0]])


def _class_for(task: str, config: Any) -> Any:
    import transformers

    if task not in TASKS:
        raise UsageProblem(
            f"There is no task called {task!r}.", remedy=f"Choose from: {', '.join(TASKS)}."
        )
    auto = getattr(transformers, TASKS[task])
    if not _offers(auto, config) and not getattr(config, "auto_map", None):
        raise UsageProblem(
            f"A {config.model_type} model can't do {task}.",
            remedy=f"Leave --task out, or choose from: {', '.join(_tasks_of(config))}.",
        )
    return auto


def _tasks_of(config: Any) -> list[str]:
    import transformers

    fitting = [task for task, auto in TASKS.items() if _offers(getattr(transformers, auto), config)]
    if not fitting:
        raise UsageProblem(
            f"transformers has no model class for the type {config.model_type!r}.",
            remedy="Give a Python factory instead: file.py:factory.",
        )
    return fitting


def _offers(auto: Any, config: Any) -> bool:
    # The names of the mapping, and not the mapping itself: looking into that imports every model.
    return config.model_type in auto._model_mapping._model_mapping
