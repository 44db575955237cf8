"""Set-up of every test: `from reference import numpy_bert` works wherever pytest is started, and there
are two CPU devices, so that two replicas can be tested on any machine."""

import sys
from pathlib import Path

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))

# Only possible before TensorFlow has run its first operation, hence here. Whatever does not ask for
# the second device computes on the first one, as always.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

from tiny_runs import (  # noqa: E402, F401  (fixtures for all tests)
    exported,
    mood_tables,
    mrpc_folder,
    pair_model,
    pretrained,
    records,
    sentence_model,
    toy_text,
)
from tiny_squad import squad2_model, squad_model, squad_sets  # noqa: E402, F401
from tiny_words_and_choices import (  # noqa: E402, F401
    choice_files,
    conll_folder,
    ner_model,
    swag_model,
)

# Test files that take minutes, most of them in processes that they start. They begin first (`make test`
# keeps this order), so that the last minutes are not one file's, with the other process idle.
LONG = (
    "test_commands_of_guides.py",
    "test_commands_of_pretraining.py",
    "test_commands.py",
    "test_faults_in_training.py",
    "test_faults_in_generation.py",
    "test_faults_on_workers.py",
    "test_faults_in_export.py",
    "test_run_on_workers.py",
    "test_trainer_workers.py",
    "test_examples.py",
    "test_quickstart.py",
    "test_packaging.py",
)


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONG)))
