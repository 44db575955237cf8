"""Records of a few examples, as one batch."""

import pytest

from bert_tf.data.records import read_records


@pytest.fixture
def written(tmp_path):
    """The function (task, examples, tokenizer) -> name -> array of all their records."""

    def write(task, examples, tokenizer):
        path = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.tf_record")
        count = task.write_records(examples, tokenizer, path)
        (batch,) = read_records([path], task.features, count)
        return {name: value.numpy() for name, value in batch.items()}

    return write
