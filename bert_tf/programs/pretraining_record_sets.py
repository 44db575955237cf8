"""Properties of a set of pre-training records: masked or not, and the question about pairs.

They are read from the records and from the manifest next to them, so that they need no flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.data.record_checks import check_records, feature_sizes
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.sidecar import compare_vocabularies
from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.manifest import Manifest, manifests_of
from bert_tf.pretraining.sentence_pairs import OBJECTIVES
from bert_tf.vocabulary import vocabulary_digest


@dataclass(frozen=True)
class RecordSet:
    """Record files with the same features.

    Attributes:
        files: the TFRecord files.
        is_masked: True if the records have masks. Other records are masked while training.
        has_pairs: True if they have `next_sentence_labels`.
        manifests: path -> manifest, for manifests that name one of the files.
        max_predictions_per_seq: predictions of a record with masks; 0 without masks.
    """

    files: tuple[str, ...]
    is_masked: bool
    has_pairs: bool
    manifests: Mapping[str, Manifest]
    max_predictions_per_seq: int = 0

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
    kinds: dict[tuple[bool, bool], str] = {}  # (is_masked, has_pairs) -> a file of this kind
    predictions: dict[int, str] = {}  # number -> a file
    for file in files:
        if sizes := feature_sizes(file):
            kinds.setdefault(("masked_lm_ids" in sizes, "next_sentence_labels" in sizes), file)
            predictions.setdefault(sizes.get("masked_lm_ids", 0), file)
    if len(kinds) > 1:
        (masked, paired), (others_masked, _), *_ = kinds
        what = "masks" if masked != others_masked else "`next_sentence_labels`"
        has, others_has = (masked, others_masked) if what == "masks" else (paired, not paired)
        first, second, *_ = kinds.values()
        raise ValueError(
            f"The records of {first} have {'' if has else 'no '}{what}, those of {second} have "
            f"{'' if others_has else 'no '}{what}. Train on files that create_pretraining_data made "
            "with the same --masking and --objective."
        )
    if len(predictions) > 1:
        (number, file), (other_number, other_file), *_ = predictions.items()
        raise ValueError(
            f"The records of {file} have {number} predictions (`max_predictions_per_seq`), those of "
            f"{other_file} have {other_number}. Train on records with the same number."
        )
    ((is_masked, has_pairs),) = kinds
    record_set = RecordSet(
        tuple(files), is_masked, has_pairs, manifests_of(files), next(iter(predictions))
    )
    by_objective = {m.flags["objective"]: path for path, m in record_set.manifests.items()}
    if len(by_objective) > 1:
        (first, path), (second, other_path), *_ = by_objective.items()
        raise ValueError(
            f"The records of {path} were made for `objective` = {first}, those of {other_path} for "
            f"{second}. Train on records of one objective."
        )
    return record_set


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
            possible = [name for name in OBJECTIVES if name in record_set.objectives]
            raise ValueError(
                f"{'`objective`' if wanted else 'The objective of the training records'} is "
                f"{objective}, but the records of {record_set.files[0]} are for "
                f"{' or '.join(possible)}, as "
                f"{next(iter(record_set.manifests), 'their features')} shows. Use "
                f"objective={record_set.objectives[0]}, or make them again with "
                f"objective={objective}."
            )
    return objective


def check_vocabulary_of_records(
    record_set: RecordSet,
    tokens: Sequence[str],
    vocab_file: str | None,
    checkpoint: PretrainedCheckpoint | None = None,
) -> None:
    """Raise if the vocabulary is not that of the records. Records without a manifest pass.

    Args:
        tokens: the vocabulary in the order of the ids.
        vocab_file: its file, if it has one.
        checkpoint: initial weights, None for random ones.

    Raises:
        ValueError: the sha256 in the manifest is that of another vocabulary.
    """
    digest = vocabulary_digest(tokens)
    for path, manifest in record_set.manifests.items():
        if manifest.vocabulary["sha256"] != digest:
            raise ValueError(
                f"{vocab_file or 'The vocabulary of the checkpoint'} is not the vocabulary that the "
                f"records were made with: its sha256 differs from the one in {path}. "
                + _remedy(manifest.vocabulary["file"], checkpoint)
            )


def _remedy(vocab_file: str, checkpoint: PretrainedCheckpoint | None) -> str:
    """Return the remedy for records that were made with this file."""
    try:
        compare_vocabularies(vocab_file, checkpoint)
    except (ValueError, OSError, tf.errors.OpError):  # the last for remote files
        return "Make the records again with the vocabulary of the checkpoint."
    return f"Give vocab_file={vocab_file}, or make the records again."


def find_case_of_records(record_sets: Iterable[RecordSet], stated: bool | None) -> bool | None:
    """Return `do_lower_case` of the manifests, else `stated`.

    Args:
        stated: the value of the flag, or in files next to the checkpoint or the vocabulary.

    Raises:
        ValueError: two of them differ.
    """
    cases: dict[bool, str] = {}  # do_lower_case -> a manifest
    for record_set in record_sets:
        for path, manifest in record_set.manifests.items():
            if isinstance(case := manifest.flags.get("do_lower_case"), bool):
                cases.setdefault(case, path)
    if len(cases) > 1:
        raise ValueError(
            f"The records of {cases[True]} were made with `do_lower_case` = True, those of "
            f"{cases[False]} with False. Use records of one case."
        )
    for case, path in cases.items():
        if stated not in (None, case):
            raise ValueError(
                f"{path}: the records were made with `do_lower_case` = {case}, but the flag, or a file "
                f"next to the checkpoint or the vocabulary, sets {stated}. Make the records again with "
                f"do_lower_case={stated}. If the records are right, give do_lower_case={case}."
            )
        return case
    return stated
