"""Reading a corpus, with progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.data.readers import read_lines
from bert_tf.training.progress import Progress


def corpus_lines(files: Sequence[str], label: str, errors: str = "strict") -> Iterator[str]:
    """The lines of all files, with progress by megabytes read; `errors` as in `read_lines`."""
    total = max(1, round(sum(tf.io.gfile.stat(file).length for file in files) / 1e6))
    progress = Progress(label, total, unit="MB")
    num_characters = 0
    for file in files:
        for line in read_lines(file, errors):
            yield line
            num_characters += len(line) + 1
            # Of gzip files and of other scripts than ours, characters are not quite bytes.
            progress.update(min(num_characters // 1_000_000, total - 1))
    progress.update(total)
