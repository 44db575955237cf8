"""mine_negatives: find texts that a model confuses with the positive of an anchor.

Source: Karpukhin et al. 2020, arXiv 2004.04906, section 3.2; the margin as in Moreira et al. 2024, arXiv
2407.15831.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.data.files import json_line, open_whole
from bert_tf.data.globs import check_not_an_input
from bert_tf.finetuning.embeddings_data import in_one_spelling
from bert_tf.finetuning.embeddings_options import PairColumnsOptions
from bert_tf.finetuning.embeddings_tables import read_file
from bert_tf.metrics.retrieval import relevance, search
from bert_tf.options import option
from bert_tf.predictor import Predictor, embed_all

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MiningOptions(PairColumnsOptions):
    """The flags of mine_negatives."""

    only_answers: ClassVar[bool] = True

    model_dir: str = option(
        "Model that ranks the texts: any folder for embeddings, also one of sentence-transformers."
    )
    input_file: str = option(
        "Anchors with positives: .tsv, .csv, .jsonl, or SQuAD's .json. Negatives are ignored, and rows "
        "with the label 0 left out."
    )
    output_file: str = option(
        "File to write, .jsonl, for --train_file of run_embeddings. An older one is replaced."
    )
    max_seq_length: int | None = option(
        "Longest input of --model_dir in tokens. Default: that of the model.", default=None
    )
    num_negatives: int = option("Negatives of each anchor, at most.", default=1, min=1)
    margin: float = option(
        "A text is left out, as a probable positive, if its cosine is above that of the positive minus "
        "this.",
        default=0.05,
        between=(0, 2),
    )
    depth: int = option("Texts of each anchor that are ranked.", default=100, min=1)
    batch_size: int = option("Texts per batch of the model.", default=32, min=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file.endswith(".jsonl"):
            raise ValueError(f"output_file is {self.output_file}, but must end in .jsonl.")
        if self.depth <= self.num_negatives:
            raise ValueError(
                f"depth is {self.depth}, but must be above num_negatives={self.num_negatives}, because "
                "the positives of the anchor are among the ranked texts. Increase it."
            )


def mine_negatives(options: MiningOptions) -> None:
    """Write the anchors and positives of a file with negatives, as JSON lines.

    The columns are named by `anchor_column` and `positive_column`, so that the same options read both
    files. Default: "anchor" and "positive".
    The candidates are the positives of all other anchors. Left out are the anchor itself, its positives
    in any example, and texts that are nearer than the own positive minus the margin.

    Raises:
        ValueError: the file cannot be read or does not contain anchors with positives, or no example
            has a negative.
    """
    check_not_an_input([options.output_file], [options.input_file])
    examples = in_one_spelling(read_file(options.input_file, options, only_positives=True)[1])
    with open_whole(options.output_file) as file:  # fails before the long work
        model = Predictor(
            options.model_dir, batch_size=options.batch_size, max_seq_length=options.max_seq_length
        )
        anchors, documents, positives = relevance(each.texts[:2] for each in examples)
        logger.info("%d anchors and %d documents", len(anchors), len(documents))
        queries = embed_all(model, list(anchors), "anchors", as_query=True)
        vectors = embed_all(model, list(documents), "documents")
        scores, indexes = search(queries, vectors, options.depth)
        columns = (options.anchor_column or "anchor", options.positive_column or "positive")
        texts, without, too_few, too_near = list(documents), 0, 0, 0
        for example in examples:
            anchor, positive = example.texts[:2]
            number = anchors[anchor]
            most = float(queries[number] @ vectors[documents[positive]]) - options.margin
            left_out = {*positives[number], documents.get(anchor)}
            others = [
                (texts[index], score)
                for index, score in zip(indexes[number], scores[number], strict=True)
                if index not in left_out
            ]
            far = [text for text, score in others if score <= most]
            too_near += len(others) - len(far)
            without += not far
            too_few += len(far) < options.num_negatives
            names = (f"negative_{k}" for k in range(1, options.num_negatives + 1))
            row = dict(zip(columns, (anchor, positive), strict=True))
            row |= dict(itertools.zip_longest(names, far[: options.num_negatives], fillvalue=""))
            file.write(json_line(row))
        if without == len(examples):
            raise ValueError(
                f"No example of {options.input_file} has a negative. Negatives are positives of other "
                f"anchors, among the depth={options.depth} nearest texts, with a cosine of at most that "
                f"of the own positive minus margin={options.margin:g}. Decrease margin, increase depth, "
                "or add examples with other positives."
            )
    logger.log(
        logging.WARNING if without else logging.INFO,
        "%d texts were left out as probable positives (margin=%g); %d of %d examples have fewer than %d "
        "negatives, %d of them none",
        *(too_near, options.margin, too_few, len(examples), options.num_negatives, without),
    )
    logger.info("Wrote %s", options.output_file)
