"""Every program by its name, where the package is installed and run_scripts/ is not at hand.

    python -m bert_tf run_classifier --task_name=MRPC --data_dir=glue/MRPC ...

is `python run_scripts/run_classifier.py` with the same flags. The command `bert_tf` is the same.
"""

from __future__ import annotations

import difflib
import sys
from importlib import import_module

from bert_tf import cli

# Name of a script -> module below bert_tf.workflows with its options and workflow, and their names.
PROGRAMS = {
    "convert_checkpoint": ("conversion", "ConvertOptions"),
    "create_pretraining_data": ("pretraining_data", "PretrainingDataOptions"),
    "create_vocab": ("vocabulary", "VocabularyOptions"),
    "export_saved_model": ("exporting", "ExportOptions"),
    "extract_features": ("extraction", "ExtractionOptions"),
    "predict": ("prediction", "PredictionOptions"),
    "prepare_corpus": ("corpus_preparation", "CorpusPreparationOptions"),
    "quickstart": ("quickstart", "QuickstartOptions"),
    "run_classifier": ("classifier", "ClassifierOptions"),
    "run_ner": ("ner", "NerOptions"),
    "run_pretraining": ("pretraining", "PretrainingOptions"),
    "run_squad": ("squad", "SquadOptions"),
    "run_swag": ("swag", "SwagOptions"),
    "visualize": ("visualization", "VisualizationOptions"),
}

_USAGE = (
    "Usage: python -m bert_tf PROGRAM --flags; each has --help, and --help alone names them all."
)


def main() -> None:
    """Runs the program that the first argument names, with the others as its flags."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h"):
        print(f"{_USAGE}\n  " + "\n  ".join(PROGRAMS))
        return
    if name not in PROGRAMS:
        close = difflib.get_close_matches(name, PROGRAMS, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        print(f"error: {name!r} is no program.{meant} {_USAGE}", file=sys.stderr)
        raise SystemExit(1)
    module_name, options_name = PROGRAMS[name]
    module = import_module(f"bert_tf.workflows.{module_name}")
    sys.modules["__main__"].__doc__ = module.__doc__  # what --help begins with
    sys.argv[:2] = [name]
    cli.run(getattr(module, options_name), getattr(module, name))


if __name__ == "__main__":
    main()
