"""The flags of run_ner."""

from __future__ import annotations

from dataclasses import dataclass

from bert_tf.data.label_schemes import SCHEMES, WORDS
from bert_tf.finetuning.options import SPLITS, ThreeFilesOptions
from bert_tf.modeling.feature_based import BILSTM_UNITS, FEATURE_LAYERS
from bert_tf.options import option


@dataclass(frozen=True, kw_only=True)
class NerOptions(ThreeFilesOptions):
    """The flags of run_ner."""

    data_dir: str | None = option(
        "Folder with the three files under usual names, such as train.txt, dev.txt (or valid.txt) and "
        "test.txt; --train_file, --eval_file and --predict_file go before.",
        default=None,
    )
    word_column: int = option("Column of the word, counted from 1.", default=1)
    label_column: int | None = option(
        "Column of the label, counted from 1. Default: the last.", default=None
    )
    test_labels: bool | None = option(
        "Whether --predict_file has labels. Default: if it has more than one column.", default=None
    )
    label_scheme: str = option(
        "How labels mark entities; words: they mark none, as parts of speech do, and the metrics are "
        "accuracy and macro F1. auto finds it in the training data (words if no label begins with B- or "
        "I-), and only warns of labels that break it; with another value they are errors.",
        default="auto",
        choices=("auto", *SCHEMES, WORDS),
    )
    document_context: bool = option(
        "Show the model as much of the document around each sentence as --max_seq_length holds, as in "
        "the paper. -DOCSTART- lines separate documents.",
        default=False,
    )
    doc_stride: int | None = option(
        "WordPieces between the beginnings of windows, where a sentence or document needs several. "
        "Default: half a window.",
        default=None,
    )
    feature_based: bool = option(
        "Do not fine-tune: train a two-layer BiLSTM on layers of the unchanged encoder.",
        default=False,
    )
    feature_layers: str = option(
        "With --feature_based: which layers.",
        default="concat_last_four_hidden",
        choices=tuple(FEATURE_LAYERS),
    )
    bilstm_units: int = option(
        "With --feature_based: units of each direction in each of the two layers of the BiLSTM.",
        default=BILSTM_UNITS,
        min=1,
    )
    bilstm_learning_rate: float = option(
        "With --feature_based: the learning rate, in place of --learning_rate.",
        default=1e-3,
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data_dir is None:
            self.require_files((wanted, file) for _, wanted, file in SPLITS)
        if self.feature_based and self.freeze:
            raise ValueError("`freeze` has no meaning with feature_based: all of it is frozen.")

    @property
    def base_learning_rate(self) -> float:
        return self.bilstm_learning_rate if self.feature_based else self.learning_rate
