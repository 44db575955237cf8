"""All programs by name, for an installed package without run_scripts/.

    python -m bert_tf run_classifier --task_name=MRPC --data_dir=glue/MRPC ...

equals `python run_scripts/run_classifier.py` with the same flags. The command `bert_tf` is the same.
`python -m bert_tf --version` prints the versions and the devices of a report of an error.
"""

from __future__ import annotations

import ast
import os
import platform
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

from bert_tf import __version__, cli
from bert_tf.limits import suggestion

# Name of a script -> module in bert_tf with the function of that name; its options class.
PROGRAMS = {
    "convert_checkpoint": ("serving.convert_checkpoint", "ConvertOptions"),
    "create_pretraining_data": ("pretraining.create_pretraining_data", "PretrainingDataOptions"),
    "create_vocab": ("pretraining.create_vocab", "VocabularyOptions"),
    "export_saved_model": ("serving.export_saved_model", "ExportOptions"),
    "extract_features": ("prediction.extract_features", "ExtractionOptions"),
    "predict": ("prediction.predict", "PredictionOptions"),
    "run_classifier": ("tasks.run_classifier", "ClassifierOptions"),
    "run_embeddings": ("embeddings.run_embeddings", "EmbeddingOptions"),
    "run_ner": ("tasks.run_ner", "NerOptions"),
    "run_pretraining": ("pretraining.run_pretraining", "PretrainingOptions"),
    "run_reranker": ("embeddings.run_reranker", "RerankerOptions"),
    "run_squad": ("tasks.run_squad", "SquadOptions"),
    "run_swag": ("tasks.run_swag", "SwagOptions"),
    "visualize": ("prediction.visualize", "VisualizationOptions"),
}

_PACKAGES = (  # of a report of an error
    *("tensorflow", "tensorflow-text", "keras", "numpy", "absl-py"),
    *("onnxruntime", "openvino", "nncf", "huggingface_hub", "apache-beam"),
)
_USAGE = (
    "Usage: python -m bert_tf PROGRAM --flags. --help lists all programs, PROGRAM --help its flags, "
    "--version versions and devices."
)


def main() -> None:
    """Run the program named by the first argument, with the others as its flags."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h"):
        with cli.ignore_broken_pipe():
            print(_USAGE, *(f"  {_summary(name)}" for name in PROGRAMS), sep="\n")
        return
    if name == "--version":
        print("\n".join(list_versions_and_devices()))
        return
    if name not in PROGRAMS:
        print(
            f"error: Unknown program {name!r}{suggestion(name, PROGRAMS)} {_USAGE}", file=sys.stderr
        )
        sys.exit(1)
    module_name, options_name = PROGRAMS[name]
    module = import_module(f"bert_tf.{module_name}")
    sys.argv[:2] = [name]
    cli.run(getattr(module, options_name), getattr(module, name), module.__doc__)


def _summary(program: str) -> str:
    """Return the first line of the docstring of a program's module, which is not imported."""
    source = Path(__file__).parent / f"{PROGRAMS[program][0].replace('.', '/')}.py"
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or program
    return text.partition("\n")[0]


def list_versions_and_devices() -> Iterator[str]:
    """Yield lines: versions of packages, the processor's instructions for products, GPUs."""
    import tensorflow as tf

    from bert_tf.training.strategy import BFLOAT16_FLAGS, INT8_FLAGS, choose_precision, cpu_flags

    yield f"bert_tf {__version__}, Python {platform.python_version()}, {platform.platform()}"
    installed = {dist.name: dist.version for dist in metadata.distributions()}
    yield ", ".join(f"{name} {installed[name]}" for name in _PACKAGES if name in installed)
    instructions = {"avx2", "avx512f", *BFLOAT16_FLAGS, *INT8_FLAGS} & set(cpu_flags() or ())
    yield f"{os.cpu_count()} processors: {', '.join(sorted(instructions)) or platform.machine()}"
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    yield "GPUs: " + (", ".join(str(d.get("device_name", "?")) for d in details) or "none")
    yield f"--precision=auto: {choose_precision()}"


if __name__ == "__main__":
    main()
