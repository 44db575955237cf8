"""The same command again, from an encoder of Hugging Face or sentence-transformers: it resumes."""

import json
from dataclasses import replace

import pytest
from tiny_runs import (
    Interruption,
    assert_bit_equal,
    checkpoint_arrays,
    classifier_options,
    interrupt_at,
    pretraining_options,
)
from tiny_squad import squad_options
from tiny_words_and_choices import ner_training, swag_options

from bert_tf.config import BertConfig
from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.multiple_choice import run_swag
from bert_tf.finetuning.question_answering import run_squad
from bert_tf.finetuning.token_classification import run_ner
from bert_tf.interop.huggingface import config_values, huggingface_tensors
from bert_tf.interop.tensor_files import write_safetensors
from bert_tf.interop.tokenizer_files import tokenizer_values
from bert_tf.modeling.bert import BertModel
from bert_tf.programs.run_pretraining import run_pretraining
from bert_tf.registry import TYPES
from bert_tf.training.checkpoints import latest_checkpoint

pytestmark = pytest.mark.night

# Program -> what it starts from.
PROGRAMS = {
    run_classifier: "sentence_transformers",
    run_ner: "huggingface",
    run_pretraining: "sentence_transformers",
    run_squad: "huggingface",
    run_swag: "huggingface",
}


@pytest.fixture(scope="module")
def folders(toy_text, tmp_path_factory):
    """An encoder as `transformers` and as sentence-transformers save it."""
    folder = tmp_path_factory.mktemp("encoders")
    config = BertConfig.from_json_file(toy_text / "bert_config.json")
    config = replace(config, num_hidden_layers=1)
    vocab = (toy_text / "vocab.txt").read_text().splitlines()
    arrays = {variable.path: variable.numpy() for variable in BertModel(config).weights}
    head = TYPES["encoder"]
    values = config_values(config, head, vocab=vocab) | {
        "_name_or_path": "toy",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "transformers_version": "4.57.0",
    }
    for name in ("huggingface", "sentence_transformers/0_Transformer"):
        part = folder / name
        part.mkdir(parents=True)
        write_safetensors(
            str(part / "model.safetensors"), huggingface_tensors(arrays, config, head)[0]
        )
        (part / "vocab.txt").write_text((toy_text / "vocab.txt").read_text())
        for file, content in tokenizer_values(vocab, True, 31).items():
            (part / file).write_text(json.dumps(content))
        (part / "config.json").write_text(json.dumps(values))
    modules = [
        {"idx": 0, "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "sentence_transformers" / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture
def options_of(request, toy_text, tmp_path):
    """(program, initial checkpoint) -> its options for six steps with a checkpoint after every two."""

    def options_of(program, checkpoint):
        fixture = request.getfixturevalue
        output_dir = tmp_path / "output"
        common = {
            "init_checkpoint": str(checkpoint),
            "do_train": True,
            "do_eval": False,
            "save_checkpoints_steps": 2,
            "jit_compile": "false",
        }
        if program is run_pretraining:
            steps = {"num_train_steps": 6, "num_warmup_steps": 2, "evaluate_steps": 0}
            flags = {**common, **steps, "bert_config_file": None}
            return pretraining_options(fixture("records"), toy_text, output_dir, **flags)
        if program is run_classifier:
            data = {"task_name": "MRPC", "data_dir": str(fixture("mrpc_folder"))}  # 80 rows
            return classifier_options(output_dir, **common, **data, num_train_epochs=1.2)
        if program is run_ner:  # 90 sentences
            return ner_training(
                checkpoint, fixture("conll_folder"), output_dir, **common, num_train_epochs=1.1
            )
        if program is run_swag:  # 90 questions
            file = fixture("choice_files")["train_file"]
            return swag_options(output_dir, **common, train_file=file, num_train_epochs=1.1)
        del common["do_eval"]
        file = str(fixture("squad_sets") / "train.json")  # 160 questions
        return squad_options(output_dir, **common, train_file=file, num_train_epochs=0.6)

    return options_of


@pytest.mark.weekly_cases("run_squad", "run_ner", "run_swag", "run_classifier")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_same_command_ends_with_the_bits_of_one_run_and_then_finds_nothing_to_train(
    program, folders, options_of, monkeypatch, caplog, tmp_path
):
    options = options_of(program, folders / PROGRAMS[program])
    program(replace(options, output_dir=str(tmp_path / "whole")))
    with monkeypatch.context() as patch, pytest.raises(Interruption):
        interrupt_at(patch, step=3)
        program(options)
    assert latest_checkpoint(options.output_dir).endswith("model.ckpt-2")
    with caplog.at_level("INFO"):
        program(options)
        assert latest_checkpoint(options.output_dir).endswith("model.ckpt-6")
        program(options)
    assert "Nothing to train: the checkpoint has step 6, and the training ends at 6" in caplog.text
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-6")
        for folder in (options.output_dir, tmp_path / "whole")
    )
    assert_bit_equal(found, expected)
