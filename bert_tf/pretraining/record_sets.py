"""Properties of a set of pre-training records: masked or not, and the question about pairs.

They are read from the records and from the manifest next to them, so that they need no flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bert_tf.data.records import check_records, feature_sizes
from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.manifest import Manifest, manifests_of
from bert_tf.vocabulary import vocabulary_digest


@dataclass(frozen=True)
class RecordSet:
    """Record files with the same features.

    Attributes:
        files: the TFRecord files.
        has_pairs: True if they have `next_sentence_labels`.
        manifests: path -> manifest, for manifests that name one of the files.
        max_predictions_per_seq: predictions of a record; 0 for records without masks, which are masked
            while training.
    """

    files: tuple[str, ...]
    has_pairs: bool
    manifests: Mapping[str, Manifest]
    max_predictions_per_seq: int = 0

    @property
    def is_masked(self) -> bool:
        return self.max_predictions_per_seq > 0

    @property
    def objectives(self) -> tuple[str, ...]:
        """Possible objectives, the likeliest first.

        `mlm` is always possible, because it ignores the labels of pairs. Without a manifest the
        labels may be about the next sentence, as in the reference, or about order.
        """
        if not self.has_pairs:
            return ("mlm",)
        for manifest in self.manifests.values():
            return (manifest.flags["objective"], "mlm")
        return ("mlm_nsp", "mlm_sop", "mlm")


def read_record_set(files: Sequence[str], max_seq_length: int) -> RecordSet:
    """Read the first record of each file and the manifests.

    Raises:
        ValueError: a file has no pre-training records of this length, or two files differ in their
            features or objectives.
    """
    check_records(files, pretraining_features(max_seq_length, None, "mlm"))
    kinds = {file: sizes for file in files if (sizes := feature_sizes(file))}
    manifests = manifests_of(files)
    objectives = {path: manifest.flags["objective"] for path, manifest in manifests.items()}
    for values, what in ((kinds, "features"), (objectives, "objectives")):
        for first, other in pairwise(values):
            if values[first] != values[other]:
                raise ValueError(f"{first} and {other} have different {what}.")
    sizes = next(iter(kinds.values()))
    return RecordSet(
        tuple(files), "next_sentence_labels" in sizes, manifests, sizes.get("masked_lm_ids", 0)
    )


def choose_objective(
    wanted: str | None, record_sets: Sequence[RecordSet], trained: str | None = None
) -> str:
    """Return the objective: the flag's, else `trained`, else that of the first set.

    Args:
        wanted: value of the flag.
        trained: objective of a model that is only evaluated; used if all records allow it.

    Raises:
        ValueError: some records do not allow it.
    """
    if trained and all(trained in record_set.objectives for record_set in record_sets):
        wanted = wanted or trained
    objective = wanted or record_sets[0].objectives[0]
    for record_set in record_sets:
        if objective not in record_set.objectives:
            raise ValueError(
                f"objective is {objective}, but the records of {record_set.files[0]} are for "
                f"{' or '.join(record_set.objectives)}."
            )
    return objective


def check_vocabulary_of_records(
    record_set: RecordSet, tokens: Sequence[str], vocab_file: str | None
) -> None:
    """Raise if the vocabulary is not that of the records. Records without a manifest pass.

    Args:
        tokens: the vocabulary in the order of the ids.
        vocab_file: its file, if it has one.

    Raises:
        ValueError: the sha256 in the manifest is that of another vocabulary.
    """
    digest = vocabulary_digest(tokens)
    for path, manifest in record_set.manifests.items():
        if manifest.vocabulary["sha256"] != digest:
            raise ValueError(
                f"{vocab_file or 'The vocabulary of the checkpoint'} is not the vocabulary of the "
                f"records, which was {manifest.vocabulary['file']} ({path})."
            )


def find_case_of_records(record_sets: Iterable[RecordSet], stated: bool | None) -> bool | None:
    """Return `do_lower_case` of the manifests, else `stated`.

    Args:
        stated: the value of the flag, or in files next to the checkpoint or the vocabulary.

    Raises:
        ValueError: two of them differ.
    """
    case = stated
    for record_set in record_sets:
        for path, manifest in record_set.manifests.items():
            found = manifest.flags["do_lower_case"]
            if case not in (None, found):
                raise ValueError(
                    f"{path}: the records were made with do_lower_case={found}, but the flag, other "
                    f"records, or a file next to the checkpoint or the vocabulary has {case}."
                )
            case = found
    return case
