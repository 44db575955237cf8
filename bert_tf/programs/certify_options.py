"""The flags of certify."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.options import option
from bert_tf.programs.predict_input import AnswerOptions


@dataclass(frozen=True, kw_only=True)
class CertifyOptions(AnswerOptions):
    """The flags of certify."""

    only_answers: ClassVar[bool] = True

    model_dir: str = option(
        "The exported model: the --output_dir of a run, or any checkpoint. Its Python classes in "
        "float32 are right by definition.",
        group="Model",
    )
    export_dir: str = option(
        "Comma list of exports: SavedModels, folders with model.tflite, model.onnx or model.xml, "
        "Hugging Face folders; or folders with such subfolders.",
        group="Data",
    )
    environment: str | None = option(
        "Comma list of NAME:PYTHON, such as 2.19:env/bin/python: interpreters with other versions of "
        "TensorFlow, which answer with each SavedModel too.",
        default=None,
    )
    max_difference: float | None = option(
        "Largest difference of an output, absolute, or relative to its largest value if that exceeds 1. "
        "Default: 1e-5 in float32, 0.01 in float16, 0.05 in bfloat16, 0.5 in int8.",
        default=None,
        min=0,
    )
    max_flipped: float | None = option(
        "Largest fraction of changed decisions (labels, answers, best tokens). Default: 0 in float32, "
        "else 0.01.",
        default=None,
        between=(0, 1),
    )
    variants: bool = option(
        "Also ask with the first inputs in upper case, with accents and rare characters, and beyond the "
        "longest input.",
        default=True,
    )
    batch_size: int = option(
        "Inputs per batch with padding; each is also asked alone.",
        group="Machine",
        default=8,
        min=1,
    )
    output_file: str = option(
        "The page, so the name should end in .html. The JSON has the same name with .json.",
        group="Data",
        default="certificate.html",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_file.endswith(".json"):
            raise ValueError(
                f"output_file is {self.output_file}, but it names the page. The JSON is written next to "
                f"it, with .json. Use {self.output_file.removesuffix('.json')}.html."
            )

    @property
    def environments(self) -> dict[str, str | None]:
        """Name -> interpreter; "" is this process' own.

        Raises:
            ValueError: an entry has no name, or its interpreter does not exist.
        """
        found: dict[str, str | None] = {"": None}
        for entry in filter(None, (self.environment or "").split(",")):
            name, _, python = entry.strip().partition(":")
            if not name or not python:
                raise ValueError(
                    f"environment is {entry!r}, but must be NAME:PYTHON, such as 2.19:env/bin/python."
                )
            if shutil.which(python) is None:
                raise ValueError(
                    f"environment has the interpreter {python}, which is not an executable file. Give "
                    "the path of the python of an environment, such as env/bin/python."
                )
            found[name] = python
        return found
