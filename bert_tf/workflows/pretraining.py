"""run_pretraining: TFRecords in, a pre-trained encoder out.

Source: google-research/bert, run_pretraining.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from bert_tf.config import BertConfig
from bert_tf.data.files import expand_files
from bert_tf.data.manifest import check_record_sets
from bert_tf.data.records import check_records
from bert_tf.interop.checkpoint import PretrainedCheckpoint, file_beside
from bert_tf.model_folder import write_model_folder
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.training.trainer import Trainer
from bert_tf.workflows import lookup, training
from bert_tf.workflows.options import TrainingOptions, option, require_one_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(TrainingOptions):
    """The flags of run_pretraining."""

    input_file: str = option("TFRecord files to train on; comma list of globs.")
    eval_file: str | None = option(
        "Held-out TFRecord files to evaluate on. Default: --input_file, as in the reference, which "
        "shows how well the training data are known and not how well the model is.",
        default=None,
    )
    bert_config_file: str | None = option(
        "Architecture. Default: the one beside --init_checkpoint or in --output_dir.", default=None
    )
    vocab_file: str | None = option(
        "Vocabulary of the records, copied into --output_dir so that the model can be used alone. "
        "Default: the one beside --bert_config_file or --init_checkpoint, if there is one.",
        default=None,
    )
    do_lower_case: bool | None = option(
        "Whether the records were lower-cased; noted in --output_dir. Default: as the checkpoint or "
        "else the vocabulary shows.",
        default=None,
    )
    max_seq_length: int = option("Tokens per example; as in the records.", default=128)
    max_predictions_per_seq: int = option("Masked tokens; as in the records.", default=20)
    num_train_steps: int = option("Optimizer steps.", default=100000)
    num_warmup_steps: int = option("Steps until the full learning rate.", default=10000)
    max_eval_steps: int = option("Most batches to evaluate on.", default=100)
    evaluate_steps: int = option(
        "Evaluate every so many steps while training, with --do_eval; 0 means at the end only.",
        default=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, ("do_train", "do_eval"))
        if self.do_train and self.num_train_steps < 1:
            raise ValueError(f"--num_train_steps is {self.num_train_steps}, but must be 1 or more.")
        if self.do_train and not 0 <= self.num_warmup_steps <= self.num_train_steps:
            raise ValueError(
                f"--num_warmup_steps is {self.num_warmup_steps}, but must be from 0 to "
                f"--num_train_steps={self.num_train_steps}. A tenth of it is usual: "
                f"--num_warmup_steps={self.num_train_steps // 10}."
            )
        if self.max_eval_steps < 1:
            raise ValueError(f"--max_eval_steps is {self.max_eval_steps}, but must be 1 or more.")
        if self.evaluate_steps < 0:
            raise ValueError(f"--evaluate_steps is {self.evaluate_steps}, but must be 0 or more.")


def run_pretraining(options: PretrainingOptions) -> dict[str, float]:
    """Trains and evaluates; the results of the evaluation, if any.

    Writes `model.ckpt-N`, `metrics.jsonl`, `eval_results.txt` and what model_folder.py lists.
    """
    lookup.trained_weights_needed(options)
    task = PretrainingTask(options.max_seq_length, options.max_predictions_per_seq)
    checkpoint = lookup.read_initial_checkpoint(options)
    config = lookup.find_config(options.bert_config_file, checkpoint)
    lookup.check_sequence_length(options.max_seq_length, config)
    train_files = expand_files(options.input_file)
    eval_files = expand_files(options.eval_file) if options.eval_file else train_files
    files = (train_files if options.do_train else []) + (eval_files if options.do_eval else [])
    files = list(dict.fromkeys(files))
    check_records(files, task.features, id_limits(config, task))
    check_record_sets(files, set_limits(config, task))
    trainer = training.make_trainer(
        task,
        config,
        options,
        checkpoint,
        num_train_steps=options.num_train_steps if options.do_train else 0,
        num_warmup_steps=options.num_warmup_steps,
    )
    logger.info("%s", training.describe_model(trainer.model))
    if options.do_train:
        vocab = find_vocabulary(options, checkpoint)
        do_lower_case = lookup.find_case(options.do_lower_case, checkpoint, vocab)
        write_model_folder(options.output_dir, config, task, vocab, do_lower_case)
        training.train(
            trainer,
            task,
            train_files,
            options,
            options.num_train_steps,
            evaluate=lambda: evaluate(trainer, task, eval_files, options),
            evaluate_steps=options.evaluate_steps if options.do_eval else 0,
        )
    if not options.do_eval:
        return {}
    results = evaluate(trainer, task, eval_files, options)
    path = os.path.join(options.output_dir, "eval_results.txt")
    training.write_results(path, results, "Eval results")
    return results


def evaluate(
    trainer: Trainer, task: PretrainingTask, files: list[str], options: PretrainingOptions
) -> dict[str, float]:
    """Figures of the model as it is now."""
    kept = training.run_model(
        trainer, task, files, options.eval_batch_size, max_batches=options.max_eval_steps
    )
    results = {"global_step": trainer.step, **task.metrics(kept)}
    logger.info(
        "step %d: masked_lm_loss %.3f, masked_lm_accuracy %.3f, next_sentence_accuracy %.3f",
        *(
            results[key]
            for key in (
                "global_step",
                "masked_lm_loss",
                "masked_lm_accuracy",
                "next_sentence_accuracy",
            )
        ),
    )
    return results


def id_limits(config: BertConfig, task: PretrainingTask) -> dict[str, int]:
    """How many ids there are of each kind in a record."""
    return {
        "input_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
        "masked_lm_positions": task.max_seq_length,
        "masked_lm_ids": config.vocab_size,
        "next_sentence_labels": 2,
    }


def set_limits(config: BertConfig, task: PretrainingTask) -> dict[str, tuple[str, int]]:
    """What the manifest of the records must agree with."""
    return {
        "vocab_size": ("`vocab_size` of the model", config.vocab_size),
        "max_seq_length": ("--max_seq_length", task.max_seq_length),
        "max_predictions_per_seq": ("--max_predictions_per_seq", task.max_predictions_per_seq),
    }


def find_vocabulary(
    options: PretrainingOptions, checkpoint: PretrainedCheckpoint | None
) -> Sequence[str] | None:
    """The tokens of the run's vocabulary, or None if there is none to be found."""
    vocab_file = options.vocab_file
    if not vocab_file and options.bert_config_file:
        vocab_file = file_beside(os.path.dirname(options.bert_config_file), "vocab.txt")
    return lookup.find_vocabulary(vocab_file, checkpoint)
