"""Plain text to TFRecords of masked, paired sequences: `create_pretraining_data`.

For the same input, vocabulary, flags and seed the records equal those of the reference's script,
in the same order in the same files. All documents and all instances are held in memory.

Source: google-research/bert, create_pretraining_data.py.
"""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bert_tf.data import packing
from bert_tf.data.files import expand_files
from bert_tf.data.masking import Masker
from bert_tf.data.records import RecordWriter
from bert_tf.data.sentence_pairs import (
    MIN_SEQ_LENGTH,
    Document,
    PretrainingInstance,
    pretraining_features,
    sentence_pairs,
)
from bert_tf.interop.letter_case import vocab_is_cased
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.progress import Progress
from bert_tf.workflows.corpus import corpus_lines
from bert_tf.workflows.options import option

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions:
    """The reference's flags, with its defaults.

    Raises:
        ValueError: a value is out of its range.
    """

    input_file: str = option(
        "Plain UTF-8 text, one sentence per line, an empty line between documents: a comma list of "
        "files or globs."
    )
    output_file: str = option("TFRecord file or comma list of files, filled in turn.")
    vocab_file: str = option("The vocabulary of the model, one token per line.")
    do_lower_case: bool = option(
        "Lower-case the text: True for uncased models, False for cased ones.", default=True
    )
    do_whole_word_mask: bool = option("Mask all pieces of a word together.", default=False)
    max_seq_length: int = option("Tokens per sequence, with [CLS], [SEP] and padding.", default=128)
    max_predictions_per_seq: int = option("Most masked-LM predictions per sequence.", default=20)
    random_seed: int = option("Seed of everything random.", default=12345)
    dupe_factor: int = option("How often the corpus is used, each time masked anew.", default=10)
    masked_lm_prob: float = option("Share of the tokens that is predicted (0-1).", default=0.15)
    short_seq_prob: float = option(
        "Share of documents cut into shorter sequences (0-1).", default=0.1
    )

    num_logged_instances: int = option("How many instances are logged in full.", default=20)

    def __post_init__(self) -> None:
        for name in ("input_file", "output_file", "vocab_file"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` is empty: give --{name}.")
        least = {"max_seq_length": MIN_SEQ_LENGTH, "max_predictions_per_seq": 1, "dupe_factor": 1}
        for name, limit in least.items():
            value = getattr(self, name)
            if value < limit:
                reason = ": [CLS] A [SEP] B [SEP]" if name == "max_seq_length" else ""
                raise ValueError(f"`{name}` is {value}, but must be {limit} or more{reason}.")
        for name in ("masked_lm_prob", "short_seq_prob"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"`{name}` is {value}, but must be between 0 and 1.")


@dataclass(frozen=True)
class PretrainingDataSummary:
    """What a run of `create_pretraining_data` read and wrote."""

    output_files: tuple[str, ...]
    num_documents: int
    num_sentences: int
    num_tokens: int
    num_instances: int
    num_random_next: int
    num_predictions: int

    def __str__(self) -> str:
        return (
            f"{self.num_instances:,} instances from {self.num_documents:,} documents, "
            f"{self.num_sentences:,} sentences, {self.num_tokens:,} tokens; "
            f"{self.num_random_next / self.num_instances:.1%} with a random next sentence, "
            f"{self.num_predictions / self.num_instances:.1f} predictions each; "
            f"in {', '.join(self.output_files)}"
        )


def create_pretraining_data(options: PretrainingDataOptions) -> PretrainingDataSummary:
    """Reads a corpus and writes the TFRecords to pre-train on.

    Raises:
        ValueError: a glob matches nothing, text is not UTF-8 (the message has file and byte
            offset), there is no text, the vocabulary lacks a special token, or an output file is
            named twice or is an input.
    """
    input_files = expand_files(options.input_file, folders=True)
    output_files = _output_files(options.output_file, input_files)
    tokenizer = FullTokenizer(options.vocab_file, do_lower_case=options.do_lower_case)
    _check_case(tokenizer, options)
    masker = _masker(tokenizer, options)
    specs = pretraining_features(options.max_seq_length, options.max_predictions_per_seq)
    with ExitStack() as stack:
        # Opened before the long work: a folder that cannot be written to is found out at once.
        writers = [stack.enter_context(RecordWriter(file, specs)) for file in output_files]
        documents = read_documents(input_files, tokenizer)
        instances = create_instances(documents, masker, options)
        write_instances(instances, writers, tokenizer, options)
    summary = PretrainingDataSummary(
        output_files=tuple(output_files),
        num_documents=len(documents),
        num_sentences=sum(len(document) for document in documents),
        num_tokens=sum(document.num_tokens for document in documents),
        num_instances=len(instances),
        num_random_next=sum(instance.is_random_next for instance in instances),
        num_predictions=sum(len(instance.masked_lm_ids) for instance in instances),
    )
    logger.info("Wrote %s.", summary)
    return summary


def read_documents(files: Sequence[str], tokenizer: FullTokenizer) -> list[Document]:
    """The documents of a corpus, in order. As in the reference, the end of a file ends none.

    Args:
        files: plain UTF-8 text, one sentence per line, an empty line between documents.
        tokenizer: its `encode` makes token ids of a line.

    Raises:
        ValueError: a file is not UTF-8, or there is no text in any.
    """
    documents = [Document()]
    for line in corpus_lines(files, "read"):
        if line.strip():
            documents[-1].append(tokenizer.encode(line))
        elif len(documents[-1]):
            documents.append(Document())
    if not len(documents[-1]):
        documents.pop()
    if not documents:
        raise ValueError(
            f"There is no text in {', '.join(files)}. Expected: one sentence per line, an empty "
            "line between documents."
        )
    if len(documents) == 1:
        logger.warning(
            "The corpus is one document, so that 'random' next sentences come from the same text "
            "and next-sentence prediction learns nothing. Put an empty line between documents."
        )
    return documents


def create_instances(
    documents: list[Document], masker: Masker, options: PretrainingDataOptions
) -> list[PretrainingInstance]:
    """All instances in the order in which they are written. Shuffles `documents`, too."""
    rng = random.Random(options.random_seed)
    rng.shuffle(documents)
    progress = Progress("mask", options.dupe_factor * len(documents), unit="documents")
    instances = []
    for dupe in range(options.dupe_factor):
        for index in range(len(documents)):
            instances.extend(_masked_pairs(documents, index, masker, options, rng))
            progress.update(dupe * len(documents) + index + 1)
    rng.shuffle(instances)
    return instances


def _masked_pairs(
    documents: Sequence[Document],
    document_index: int,
    masker: Masker,
    options: PretrainingDataOptions,
    rng: random.Random,
) -> Iterator[PretrainingInstance]:
    """The instances of one document: each pair is masked before the next one is drawn."""
    for ids_a, ids_b, is_random_next in sentence_pairs(
        documents,
        document_index,
        max_seq_length=options.max_seq_length,
        short_seq_prob=options.short_seq_prob,
        rng=rng,
    ):
        token_ids, segment_ids = packing.add_special_tokens(
            ids_a, ids_b, cls=masker.cls_id, sep=masker.sep_id
        )
        yield PretrainingInstance(*masker(token_ids, rng), segment_ids, is_random_next)


def write_instances(
    instances: Sequence[PretrainingInstance],
    writers: Sequence[RecordWriter],
    tokenizer: FullTokenizer,
    options: PretrainingDataOptions,
) -> None:
    """Deals the instances out to the files, one each in turn; logs the first in full."""
    progress = Progress("write", len(instances), unit="instances")
    for number, instance in enumerate(instances):
        features = instance.to_features(options.max_seq_length, options.max_predictions_per_seq)
        writers[number % len(writers)].write(features)
        if number < options.num_logged_instances:
            _log_instance(instance, features, tokenizer)
        progress.update(number + 1)


def _log_instance(
    instance: PretrainingInstance, features: Mapping[str, Any], tokenizer: FullTokenizer
) -> None:
    logger.info("*** Example ***")
    logger.info("tokens: %s", " ".join(tokenizer.convert_ids_to_tokens(instance.token_ids)))
    for name, values in features.items():
        values = values if isinstance(values, list) else [values]
        logger.info("%s: %s", name, " ".join(map(str, values)))


def _output_files(comma_list: str, input_files: Sequence[str]) -> list[str]:
    files = [file for part in comma_list.split(",") if (file := part.strip())]
    if not files:
        raise ValueError(f"`output_file` is {comma_list!r}, but must name at least one file.")
    for file in files:
        if files.count(file) > 1:
            raise ValueError(f"{file!r} stands twice in `output_file` = {comma_list!r}.")
        if file in input_files:
            raise ValueError(f"{file!r} is an input file, and would be overwritten as an output.")
    return files


def _check_case(tokenizer: FullTokenizer, options: PretrainingDataOptions) -> None:
    cased = vocab_is_cased(tokenizer.vocab)
    if cased is not None and cased == options.do_lower_case:
        logger.warning(
            "%s looks %s, but `do_lower_case` is %s. Use --do_lower_case=%s unless this is meant.",
            options.vocab_file,
            "cased" if cased else "uncased",
            options.do_lower_case,
            not cased,
        )


def _masker(tokenizer: FullTokenizer, options: PretrainingDataOptions) -> Masker:
    try:
        return Masker(
            tokenizer.vocab,
            masked_lm_prob=options.masked_lm_prob,
            max_predictions_per_seq=options.max_predictions_per_seq,
            do_whole_word_mask=options.do_whole_word_mask,
        )
    except ValueError as error:
        raise ValueError(f"{options.vocab_file}: {error}") from error
