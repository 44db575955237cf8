"""Where a run finds its architecture, vocabulary and case: in its flags, else beside the checkpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import read_checkpoint
from bert_tf.interop.letter_case import validate_case_matches_checkpoint, vocab_is_cased
from bert_tf.tokenization import FullTokenizer, load_vocab
from bert_tf.training import checkpoints
from bert_tf.workflows.options import TrainingOptions

logger = logging.getLogger(__name__)


def read_initial_checkpoint(options: TrainingOptions) -> PretrainedCheckpoint | None:
    """What --init_checkpoint names, else the newest checkpoint in --output_dir, else None.

    Configuration and vocabulary lie beside either, so that a run goes on, or is evaluated, without
    being told again what it is.
    """
    path = options.init_checkpoint or checkpoints.latest_checkpoint(options.output_dir)
    return read_checkpoint(path) if path else None


def trained_weights_needed(options: TrainingOptions) -> None:
    """Evaluation or prediction without training needs weights from somewhere."""
    if options.do_train or options.init_checkpoint:
        return
    if checkpoints.latest_checkpoint(options.output_dir) is None:
        raise ValueError(
            f"There is no checkpoint in --output_dir={options.output_dir} and --init_checkpoint is "
            "not given: train first with --do_train, or name the weights."
        )


def find_config(
    bert_config_file: str | None, checkpoint: PretrainedCheckpoint | None
) -> BertConfig:
    """The architecture: from the flag, else from beside the checkpoint.

    Raises:
        ValueError: neither is there.
    """
    if bert_config_file:
        return BertConfig.from_json_file(bert_config_file)
    if checkpoint is None:
        raise ValueError(
            "It is not said which model this is. Give --init_checkpoint to start from trained "
            "weights, or --bert_config_file to start from random ones."
        )
    if checkpoint.config is None:
        raise ValueError(
            f"There is no bert_config.json beside {checkpoint.source}. Give --bert_config_file."
        )
    return checkpoint.config


def check_same_architecture(output_dir: str, config: BertConfig) -> None:
    """Refuses to go on with another model than the one that a folder holds checkpoints of.

    Not all that may differ shows in the shapes of the variables: the number of heads does not.
    """
    path = os.path.join(output_dir, "bert_config.json")
    if checkpoints.latest_checkpoint(output_dir) is None or not tf.io.gfile.exists(path):
        return
    there, now = (asdict(found) for found in (BertConfig.from_json_file(path), config))
    differences = [
        f"{name}: {there[name]} there, {value} now"
        for name, value in now.items()
        if there[name] != value
    ]
    if differences:
        raise ValueError(
            f"{output_dir} holds checkpoints of another model:\n  "
            + "\n  ".join(differences)
            + "\nUse another --output_dir; to start from its weights, name it in --init_checkpoint."
        )


def load_tokenizer(
    vocab_file: str | None,
    do_lower_case: bool | None,
    checkpoint: PretrainedCheckpoint | None,
    config: BertConfig,
) -> FullTokenizer:
    """The tokenizer of a run, after a look at whether it fits the checkpoint and the model.

    Args:
        vocab_file: from the flag; None means the one beside the checkpoint.
        do_lower_case: from the flag; None means what the checkpoint says, else whether the
            vocabulary is one of lower-case tokens, else True.
        checkpoint: initial weights, or None.
        config: architecture; its `vocab_size` must hold every id.

    Raises:
        ValueError: there is no vocabulary, it is larger than the model's, or its case does not fit.
    """
    tokens = find_vocabulary(vocab_file, checkpoint)
    if tokens is None:
        where = f"beside {checkpoint.source}" if checkpoint is not None else "without a checkpoint"
        raise ValueError(f"There is no vocabulary {where}. Give --vocab_file.")
    do_lower_case = find_case(do_lower_case, checkpoint, tokens)
    do_lower_case = True if do_lower_case is None else do_lower_case
    tokenizer = FullTokenizer(tokens, do_lower_case=do_lower_case)
    if checkpoint is not None:
        validate_case_matches_checkpoint(do_lower_case, checkpoint.source, tokenizer.vocab)
        _compare_vocabularies(tokenizer.vocab, checkpoint, vocab_file)
    largest = max(tokenizer.vocab.values())
    if largest >= config.vocab_size:
        raise ValueError(
            f"The vocabulary {vocab_file or 'beside the checkpoint'} has ids up to {largest}, but "
            f"`vocab_size` in the model's configuration is {config.vocab_size}. They belong to "
            "different models: give the --vocab_file of this one."
        )
    return tokenizer


def find_vocabulary(
    vocab_file: str | None, checkpoint: PretrainedCheckpoint | None
) -> Sequence[str] | None:
    """The tokens in the order of their ids: of the flag, else from beside the checkpoint, else None."""
    if vocab_file is None and checkpoint is not None:
        if checkpoint.vocab_file is None:
            return checkpoint.vocab
        vocab_file = checkpoint.vocab_file
    return list(load_vocab(vocab_file, required=("[UNK]",))) if vocab_file else None


def find_case(
    do_lower_case: bool | None,
    checkpoint: PretrainedCheckpoint | None,
    tokens: Sequence[str] | None,
) -> bool | None:
    """Whether text is lower-cased: as the flag, else the checkpoint, else the tokens say, else None."""
    if do_lower_case is None and checkpoint is not None:
        do_lower_case = checkpoint.do_lower_case
    if do_lower_case is None and tokens is not None:
        cased = vocab_is_cased(tokens)
        do_lower_case = None if cased is None else not cased
    return do_lower_case


def _compare_vocabularies(
    vocab: Mapping[str, int], checkpoint: PretrainedCheckpoint, vocab_file: str | None
) -> None:
    """Warns of words whose embeddings are those of others; a few new ones may well be meant."""
    if checkpoint.vocab_file is None or vocab_file in (None, checkpoint.vocab_file):
        return
    theirs = load_vocab(checkpoint.vocab_file)
    differing = sum(vocab.get(token) != index for token, index in theirs.items())
    if differing:
        logger.warning(
            "%d of the %d tokens in %s have no or another id in --vocab_file=%s. Unless you have "
            "replaced them on purpose, leave --vocab_file out.",
            differing,
            len(theirs),
            checkpoint.vocab_file,
            vocab_file,
        )


def check_sequence_length(max_seq_length: int, config: BertConfig) -> None:
    """Refuses sequences that the position table does not cover."""
    limit = config.max_position_embeddings
    if max_seq_length > limit:
        raise ValueError(
            f"--max_seq_length is {max_seq_length}, but `max_position_embeddings` in the model's "
            f"configuration is {limit}. Use --max_seq_length={limit} or less."
        )
