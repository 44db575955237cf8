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
    once,
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

# Folders and files of the slow tier: they start processes or take minutes. Other slow tests carry the
# mark themselves. The longest files begin first, so that no process is idle during the last minutes.
SLOW = (
    "test_commands_of_guides.py",
    "test_commands_of_pretraining.py",
    "test_commands.py::test_the_commands_of_the_readme_do_what_it_says",
    "faults",
    "test_run_pretraining_kinds.py",
    "test_run_pretraining_phases.py",
    "test_classifier_kinds.py",
    "test_sweep.py",
    "test_same_command_again.py",
    "test_run_on_workers.py",
    "test_trainer_workers.py",
    "test_runners.py",
    "test_serving_bad_input.py",
    "test_serving_guide.py",
    "test_serving_in_c.py",
    "test_certify.py",
    "test_serving_other_names.py::test_hugging_faces_names_give_the_logits_of_tokens_bit_for_bit",
    "test_serving_other_names.py::test_one_file_has_all_signatures_and_one_copy_of_the_weights",
    "test_serving_other_names.py::test_an_encoder_gives_its_vectors_under_every_name_bit_for_bit",
    "test_jax_backend.py",
    "test_bilstm.py",
    "test_run_pretraining.py::test_a_killed_process_leaves_a_whole_checkpoint",
    "test_serving_classifier.py::test_a_new_process_needs_nothing_but_tensorflow_and_tensorflow_text",
    "test_answerers.py::test_a_saved_model_needs_tensorflow_and_tensorflow_text_alone",
    "test_predict.py::test_a_reader_that_has_enough_ends_the_run_quietly",
    "test_prepare_corpus.py::test_the_script_does_it_and_names_what_is_wrong",
    "test_compiled_runs.py",
    "test_step.py::test_in_float16_a_step_is_about_that_of_float32",
    "test_step.py::test_a_compiled_step_is_that_of_single_operations_dropout_included",
    "test_keras_fit.py::test_a_classifier_learns_by_fit_on_two_devices",
    "test_tokenization.py::test_every_code_point_is_treated_as_the_rules_say",
    "test_tokenizer.py::test_every_code_point_becomes_what_full_tokenizer_says",
    "test_create_pretraining_data.py::test_the_records_do_not_depend_on_the_number_of_workers",
    "test_parallel.py::test_results_may_come_as_they_are_done_with_messages",
    "test_examples.py",
    "test_quickstart.py",
    "test_packaging.py",
    "fuzzing",
)


def pytest_collection_modifyitems(items):
    def place(item):
        names = (item.path.parent.name, item.path.name, f"{item.path.name}::{item.originalname}")
        return next((number for number, name in enumerate(SLOW) if name in names), len(SLOW))

    for item in items:
        starts_a_process = "run_script" in item.fixturenames
        if starts_a_process or place(item) < len(SLOW):
            item.add_marker("slow")
    items.sort(key=place)
