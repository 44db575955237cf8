"""The record of a pre-training instance, and the rows that hold instances until they are written.

An instance is a row of integers until all are made and shuffled, because the reference shuffles at the
end. Rows are short. Many rows go to a temporary file. Rows become records in bulk.

Shapes: N instances, S `max_seq_length`, P `max_predictions_per_seq`.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.pretraining.python_random import RandomWords

_ROWS_AT_ONCE = 1024

# Bit in the id of a token without "##" that continues a word of a segmented text; not in the records.
CONTINUES = 1 << 28

# A row begins with the number of tokens, of tokens up to the first [SEP], and of predictions, and with
# the label. S token ids, P positions and P original ids follow.
_HEAD = 4


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int | None, objective: str = "mlm_nsp"
) -> tuple[FeatureSpec, ...]:
    """Return the features of a pre-training instance, with the reference's names.

    `masked_lm_weights` is 1 for a prediction and 0 for padding. `next_sentence_labels` is 0 if B
    follows A, and 1 if B is random (or precedes A with `mlm_sop`).

    Args:
        max_seq_length: S.
        max_predictions_per_seq: P; None for records without masks, which are masked in training.
        objective: `mlm` has no `next_sentence_labels`.
    """
    specs = [*sequence_specs((max_seq_length,))]
    if max_predictions_per_seq:
        predictions = (max_predictions_per_seq,)
        output = "masked_lm_logits"
        specs += [
            FeatureSpec("masked_lm_positions", predictions),
            FeatureSpec("masked_lm_ids", predictions, role="label", output=output),
            FeatureSpec("masked_lm_weights", predictions, "float32", role="weight", output=output),
        ]
    if objective != "mlm":
        specs.append(
            FeatureSpec("next_sentence_labels", role="label", output="next_sentence_logits")
        )
    return tuple(specs)


class InstanceRows:
    """Instances to be written; `close` removes their temporary file."""

    def __init__(self, specs: Sequence[FeatureSpec], max_bytes: int = 256 << 20):
        shapes = {spec.name: spec.shape for spec in specs}
        self._specs = tuple(specs)
        self._length = shapes["input_ids"][0]
        self._predictions = shapes.get("masked_lm_ids", (0,))[0]
        self._row_bytes = 4 * (_HEAD + self._length + 2 * self._predictions)
        self._zeros = array("i", [0]) * max(self._length, self._predictions)
        self._file = tempfile.SpooledTemporaryFile(max_bytes, prefix="bert_tf-")  # noqa: SIM115
        self._count = 0
        self.close = self._file.close

    def __len__(self) -> int:
        return self._count

    def append(
        self,
        token_ids: array,
        end_a: int,
        next_sentence_label: int,
        positions: Sequence[int] = (),
        masked_lm_ids: Sequence[int] = (),
    ) -> None:
        """Append an instance with [CLS] and [SEP], not padded; `end_a`: position of the first [SEP]."""
        zeros, unused = self._zeros, self._predictions - len(positions)
        row = array("i", (len(token_ids), end_a + 1, len(positions), next_sentence_label))
        row += token_ids
        row += zeros[: self._length - len(token_ids)]
        row.extend(positions)
        row += zeros[:unused]
        row.extend(masked_lm_ids)
        row += zeros[:unused]
        self._file.write(row)
        self._count += 1

    def shuffled(self, rng: RandomWords) -> Iterator[np.ndarray]:
        """Yield rows [up to 1024, ...] in the order of `rng.shuffle` of a list of the instances."""
        order = array("I", range(self._count))
        rng.shuffle(order)
        for start in range(0, self._count, _ROWS_AT_ONCE):
            data = b"".join(map(self._read, order[start : start + _ROWS_AT_ONCE]))
            yield np.frombuffer(data, np.int32).reshape(-1, self._row_bytes // 4)

    def _read(self, index: int) -> bytes:
        self._file.seek(index * self._row_bytes)
        return self._file.read(self._row_bytes)

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the features of some rows: name -> array [rows, *shape]."""
        head, token_ids = rows[:, :_HEAD], rows[:, _HEAD : _HEAD + self._length]
        positions, masked_lm_ids = np.split(rows[:, _HEAD + self._length :], 2, axis=1)
        num_tokens, first_segment, num_predictions, labels = (
            head[:, i, None] for i in range(_HEAD)
        )
        index = np.arange(self._length)
        columns = {
            "input_ids": token_ids & (CONTINUES - 1),
            "input_mask": (index < num_tokens).astype(np.uint8),
            "segment_ids": ((index >= first_segment) & (index < num_tokens)).astype(np.uint8),
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids & (CONTINUES - 1),
            "masked_lm_weights": (np.arange(self._predictions) < num_predictions).astype(
                np.float32
            ),
            "next_sentence_labels": labels[:, 0],
        }
        return {spec.name: columns[spec.name] for spec in self._specs}
