"""Set-up of every test: `from reference import numpy_bert` works wherever pytest is started, and there
are two CPU devices, so that two replicas can be tested on any machine."""

import contextlib
import os
import sys
from pathlib import Path

# torch loads Triton, and Triton crashes if it is loaded after TensorFlow (tensorflow#124205).
with contextlib.suppress(ImportError):
    import triton  # noqa: F401

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))

# Only possible before TensorFlow has run its first operation, hence here. Whatever does not ask for
# the second device computes on the first one, as always.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# On one core a test that calls a function of TensorFlow within another has no thread for it, and two
# replicas of a step that XLA compiles wait for each other forever.
if len(os.sched_getaffinity(0)) == 1:
    tf.config.threading.set_inter_op_parallelism_threads(4)

from tiny_embeddings import embedding_files  # noqa: E402, F401  (fixtures for all tests)
from tiny_rerankers import ranking_files, reranker  # noqa: E402, F401
from tiny_runs import (  # noqa: E402, F401
    exported,
    models_loaded_once,
    mood_tables,
    mrpc_folder,
    once,
    pair_model,
    pretrained,
    records,
    sentence_model,
    steps_without_training,
    toy_text,
)
from tiny_squad import squad2_model, squad_model, squad_sets  # noqa: E402, F401
from tiny_teachers import student  # noqa: E402, F401
from tiny_words_and_choices import (  # noqa: E402, F401
    choice_files,
    conll_folder,
    crf_model,
    ner_model,
    swag_model,
)


def pytest_collection_modifyitems(items):
    """A weekly test is one of the night; `weekly_cases` marks the parametrized cases that begin so."""
    for item in items:
        marker = item.get_closest_marker("weekly_cases")
        case = item.name.partition("[")[2]
        if marker is not None and case.startswith(marker.args):
            item.add_marker("weekly")
        if item.get_closest_marker("weekly") or "run_script" in item.fixturenames:
            item.add_marker("night")
    # The longest begin first, so that no process is idle during the last minutes.
    items.sort(key=lambda item: item.get_closest_marker("night") is None)
