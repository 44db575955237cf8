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

# Folders and files of the slow tier: they start processes or take minutes. Other slow tests carry the
# mark themselves. The longest files begin first, so that no process is idle during the last minutes.
SLOW = (
    "test_commands.py::test_the_commands_of_the_readme_do_what_it_says",
    "test_commands_of_guides.py",
    "test_commands_of_pretraining.py",
    "faults",
    "test_run_pretraining_kinds.py",
    "test_run_pretraining_phases.py",
    "test_classifier_kinds.py",
    "test_same_command_again.py",
    "test_run_on_workers.py",
    "test_batch_trainer_workers.py",
    "test_runners.py",
    "test_serving_bad_input.py",
    "test_serving_guide.py",
    "test_serving_in_c.py",
    "test_serving_other_names.py::test_hugging_faces_names_give_the_logits_of_tokens_bit_for_bit",
    "test_serving_other_names.py::test_one_file_has_all_signatures_and_one_copy_of_the_weights",
    "test_jax_backend.py",
    "test_bilstm.py",
    "test_serving_classifier.py::test_a_new_process_needs_nothing_but_tensorflow_and_tensorflow_text",
    "test_answerers.py::test_a_saved_model_needs_tensorflow_and_tensorflow_text_alone",
    "test_compiled_runs.py",
    "test_serving_files.py::test_the_script_exports_and_says_how_the_model_is_asked",
    "test_serving_files.py::test_a_file_for_ids_has_no_custom_operation_and_loads_with_tensorflow_alone",
    "test_serving_classifier.py::test_an_export_that_is_killed_leaves_no_folder_and_the_next_one_succeeds",
    "test_answerers.py::test_the_served_threshold_and_longest_answer_are_those_of_the_export",
    "test_tokenizer.py::test_a_saved_model_that_holds_it_loads_without_this_package",
    "test_batch_trainer.py::test_two_replicas_resume_with_the_same_bits_too",
    "test_loop.py::test_a_step_by_length_is_the_step_of_the_full_length",
    "test_fused.py::test_the_fused_parts_may_stand_inside_a_compiled_step",
    "test_fused.py::test_in_bfloat16_the_gradients_are_no_worse_than_those_of_the_plain_layers",
    "test_keras_fit.py::test_pre_training_learns_by_fit_and_reports_both_losses",
    "test_files.py::test_standard_output_is_written_into_and_keeps_what_was_there",
    "test_huggingface_labels.py::test_training_permutes_the_classes_and_starts_a_new_classifier_for_other_labels",
    "test_serving_classifier.py::test_kernels_that_are_packed_once_answer_every_request_as_before",
    "test_serving_int8.py::test_an_export_answers_nearly_like_the_model_and_describes_each_product",
    "test_run_ner.py::test_the_feature_based_way_learns_and_leaves_the_encoder_as_it_was",
    "test_step.py::test_in_float16_a_step_is_about_that_of_float32",
    "test_step.py::test_a_compiled_step_is_that_of_single_operations_dropout_included",
    "test_keras_fit.py::test_a_classifier_learns_by_fit_on_two_devices",
    "test_tokenization.py::test_every_code_point_is_treated_as_the_rules_say",
    "test_tokenizer.py::test_every_code_point_becomes_what_full_tokenizer_says",
    "test_create_pretraining_data.py::test_the_records_do_not_depend_on_the_number_of_workers",
    "test_examples.py",
    "test_packaging.py",
    "fuzzing",
)

# Beginnings of test names, with parameters. Only `make test-all` runs these tests, and those with the
# mark "long" of their own. Where a comment names a test, that one checks the same rule.
LONG = (
    "test_faults_in_export.py::test_export_killed",  # test_serving_classifier.py kills one too
    "test_faults_in_export.py::test_prediction_killed",
    "test_faults_in_files.py::test_a_checkpoint_that_is_half_gone[0-data gone",
    "test_faults_in_files.py::test_a_checkpoint_that_is_half_gone[0-data cut off",
    "test_faults_in_files.py::test_a_checkpoint_that_is_half_gone[0-a bit of",
    "test_faults_in_files.py::test_a_checkpoint_that_is_half_gone[0-`checkpoint` cut off",
    "test_faults_in_training.py::test_ended_at_a_random_moment",  # test_run_pretraining.py kills one too
    *(
        f"test_serving_guide.py::test_the_body_is_answered[{kind}"
        for kind in ("choices", "embeddings", "words")
    ),
    *(
        f"test_serving_other_names.py::test_hugging_faces_names_give_the_logits_of_tokens_bit_for_bit[{kind}"
        for kind in ("chooser", "regression")
    ),
    "test_run_pretraining_kinds.py::test_an_invalid_id_after_the_first_records_is_named[masked_nsp-eval",
    "test_run_pretraining_kinds.py::test_an_invalid_id_after_the_first_records_is_named[unmasked",
    "test_run_pretraining_kinds.py::test_single_sequences_have_masked_words_only[unmasked",
    "test_run_pretraining_kinds.py::test_records_of_ordered_pairs_have_the_keys_of_next_sentences[masked",
    "test_run_pretraining_kinds.py::test_every_evaluation_has_the_same_masks_whatever_the_seed",
    "test_run_pretraining_phases.py::test_packed_rows_give_the_losses_of_padded_ones",  # test_loop.py
    "test_run_pretraining_phases.py::test_a_run_goes_on_only_with_the_optimizer_that_began_it[changes1",
    "test_classifier_kinds.py::test_the_weights_of_a_step_are_evaluated_once",
    *(
        "test_same_command_again.py::test_the_same_command_ends_with_the_bits_of_one_run_and_then_"
        f"finds_nothing_to_train[run_{name}"
        for name in ("squad", "ner", "swag")
    ),
    "test_compiled_runs.py",  # test_step.py compares single steps
    "test_run_embeddings.py::test_the_trainer_has_the_metrics_of_the_program[pairs-2-triplet",
    "test_run_embeddings.py::test_a_resumed_run",  # other programs: test_same_command_again.py
    "test_faults_in_generation.py::test_killed_at_a_random_moment",  # test_runners.py kills one too
    "test_gradient_cache.py::test_a_teacher_is_compared",
    # test_the_gradient_is_that_of_the_loss_of_all_examples has parts too
    "test_gradient_cache.py::test_parts_and_devices_do_not_change_the_gradient[1-3-false",
    "test_run_on_workers.py",  # test_batch_trainer_workers.py
    "test_serving_consumers.py::test_tfx_sends",
    "test_run_pretraining_kinds.py::test_without_pairs_the_head_stays",
    "test_run_pretraining_kinds.py::test_the_labels_of_pairs_can_be_left_alone",
    "test_run_pretraining_phases.py::test_a_second_phase_goes_on_with_weights",  # a_decay_branches
    "test_serving_guide.py::test_the_body_is_answered[entities",
    "test_answerers.py::test_a_saved_model_needs_tensorflow",  # test_serving_classifier.py
    *(
        f"test_serving_int8.py::test_the_ids_are_those_of_the_python_classes[{kind}"
        for kind in ("choices", "crf", "embedder", "entities", "multi_label", "pair", "regression")
    ),
    "test_exported_text_models.py::test_real_tflite_files_answer_as_the_model[choices",
    "test_exported_text_models.py::test_real_tflite_files_answer_as_the_model[masks",
    "test_huggingface_labels.py::test_export_uses_the_head",  # test_pretrained.py exports such a folder
    "test_fused.py::test_a_whole_model_has_the_loss_and_gradients_of_the_plain_layers[relu",
    # Kinds, formats and precisions of what another test checks for one of them.
    "test_serving_int8.py::test_every_type_of_task_is_exported",  # test_an_export_answers_nearly
    "test_serving_guide.py::test_the_body_is_answered[masked",
    "test_serving_guide.py::test_the_body_is_answered[questions",
    *(
        f"test_serving_other_names.py::test_{test}[{kind}"
        for test, kind in (
            ("hugging_faces_names_give_the_logits_of_tokens_bit_for_bit", "answerer"),
            ("hugging_faces_names_give_the_logits_of_tokens_bit_for_bit", "tagger"),
            ("examples_are_answered_as_their_texts_are_bit_for_bit", "answerer"),
            ("examples_are_answered_as_their_texts_are_bit_for_bit", "pairs"),
            ("examples_are_answered_as_their_texts_are_bit_for_bit", "regression"),
            ("examples_are_answered_as_their_texts_are_bit_for_bit", "tagger"),
        )
    ),
    "test_serving_consumers.py::test_clients_of_hugging_faces",  # test_serving_other_names.py
    "test_run_embeddings.py::test_folders_of_sentence_transformers",  # test_sentence_transformers.py
    "test_serving_in_c.py::test_requests_go_in_and_the_outputs_that_python_gets_come_out[pair",
    "test_serving_crf.py::test_other_formats_label_ids_too",  # test_a_saved_model_answers
    *(
        f"test_exported_text_models.py::test_every_type_of_task_answers_as_the_model[{kind}"
        for kind in ("entities", "multi_label", "pair")
    ),
    "test_serving_files.py::test_a_lite_model_answers_batches_of_any_shape[float16",
    "test_answerers.py::test_the_served_threshold",  # test_exported_text_models.py: lengths, settings
    "test_run_embeddings.py::test_scores_and_classes_are_learned",  # test_what_can_be_learned
    "test_bilstm.py::test_a_run_with_it_notes_it",  # test_run_ner.py: test_the_feature_based_way
    "test_examples.py::test_the_custom_head_counts",
    "test_keras_fit.py::test_a_classifier_learns_by_fit_on_two_devices",  # as_keras_compiles_it
    "test_keras_fit.py::test_pre_training_learns_by_fit",  # as_keras_compiles_it
    "test_batch_trainer.py::test_two_replicas_resume",  # test_same_command_again.py: one
    "test_step.py::test_in_float16_a_step_is_about_that_of_float32",  # test_failures.py
    "test_fused.py::test_in_bfloat16",
    "test_gradient_cache.py::test_devices_with_different_numbers_of_examples",
    "test_loop.py::test_what_is_frozen_stays_and_the_rest_learns_and_goes_on_after_a_resume[lamb",
    "test_models.py::test_a_left_to_right_model_is_saved_and_compiled_as_one[True",
    "test_models.py::test_keras_predict_works_with_and_without_jit[True",
    "test_cli.py::test_packed_kernels_are_kept_where_no_weight_changes[True-0",
    "test_commands_of_pretraining.py",  # test_commands.py runs the README's, which pre-train too
    "test_commands_of_guides.py::test_the_commands_of_a_guide_do_what_it_says[squad.md",
    "test_examples.py::test_keras_fit_learns",  # test_keras_fit.py
    "test_classifier_kinds.py::test_what_stands_behind_the_first_window",  # test_classification.py
    "test_huggingface_labels.py::test_training_permutes_the_classes",
    "test_faults_in_files.py::test_a_bit_that_flipped_in_a_record",  # test_records.py
    "test_same_command_again.py::test_the_same_command_ends_with_the_bits_of_one_run_and_then_"
    "finds_nothing_to_train[run_classifier",  # [run_pretraining
    "test_batch_trainer.py::test_a_batch_in_parts_takes_the_same_steps_as_a_whole_one[2",
    "test_batch_trainer.py::test_a_batch_in_parts_takes_the_same_steps_as_a_whole_one[1-5",
    *(
        f"test_gradient_cache.py::test_parts_and_devices_do_not_change_the_gradient[{case}"
        for case in ("1-1-auto", "1-5-auto", "1-2-true")  # compiled; test_compiled_runs.py
    ),
    "test_step.py::test_a_compiled_step_is_that_of_single_operations_dropout_included[auto",
    *(  # heads with other inputs, with several outputs and without a head remain
        f"test_model_inputs.py::test_the_export_of_keras_has_the_names_and_types_and_answers_like_the_model[{kind}"
        for kind in ("masked_lm", "tokens", "answers", "embedding", "bilstm")
    ),
    "test_loop.py::test_packed_rows_in_parts_make_the_step_of_the_whole_batch[true",
    "test_sentence_embeddings.py::test_padding_and_neighbours_cannot_be_seen_in_an_embedding[1",
    "test_serving_encoder.py::test_embeddings_are_pooled_from_the_real_tokens_alone[max",
    "test_serving_encoder.py::test_embeddings_are_pooled_from_the_real_tokens_alone[pooled",
    "test_serving_classifier.py::test_a_classifier_with_windows_reads_the_whole_text[9",
    "test_static_shapes.py::test_outputs_of_two_devices_are_compared_in_static_shapes[1",
    "test_tokenization.py::test_every_code_point_is_treated_as_the_rules_say[False",
    "test_tokenizer.py::test_every_code_point_becomes_what_full_tokenizer_says[False",
    "test_files.py::test_standard_output_is_written_into_and_keeps_what_was_there[False",
    # Of these, cases with the same code remain.
    "test_optimization.py::test_a_resumed_optimizer_takes_the_steps_of_one_that_never_stopped[AdamW",
    "test_batch_trainer.py::test_a_batch_of_any_size_is_dealt_out_to_two_replicas[4",  # twenty steps: 5
    *(
        f"test_keras_fit.py::test_a_pooler_without_gradients_is_left_out_as_the_guide_shows[<lambda>-{kind}"
        for kind in ("True1", "True2", "True3")  # the words remain
    ),
    *(
        f"test_feature_based.py::test_padding_cannot_be_seen[{layers}"
        for layers in (
            "embeddings",
            "second_to_last_hidden",
            "last_hidden",
            "weighted_sum_last_four_hidden",
        )
    ),
    "test_sentence_transformers.py::test_an_embedder_keeps_its_pooling_and_projection[None-tf1",
    "test_sentence_transformers.py::test_an_embedder_keeps_its_pooling_and_projection[3-huggingface",
)


def pytest_collection_modifyitems(items):
    def place(item):
        names = (item.path.parent.name, item.path.name, f"{item.path.name}::{item.originalname}")
        return next((number for number, name in enumerate(SLOW) if name in names), len(SLOW))

    for item in items:
        starts_a_process = "run_script" in item.fixturenames
        if starts_a_process or place(item) < len(SLOW):
            item.add_marker("slow")
        if f"{item.path.name}::{item.name}".startswith(LONG):
            item.add_marker("slow")
            item.add_marker("long")
    items.sort(key=place)
