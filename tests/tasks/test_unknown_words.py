"""A warning about a vocabulary that does not fit the texts of the training."""

from bert_tf.data.parallel import SentenceRecords, SentenceRow
from bert_tf.data.records import write_parts
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.run import warn_of_unknown_words
from bert_tf.tokenization import FullTokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dog", "서울", "Zürich", ".", "##s"]


def test_only_a_vocabulary_that_does_not_fit_is_warned_about(caplog, tmp_path):
    tokenizer, task = FullTokenizer(TOKENS, False), ClassificationTask(["x", "y"], 9)
    for number, (lines, share) in enumerate(
        (
            (["cat"], None),
            (["the dogs ."] * 20 + ["cats the dog"], None),
            (["the dog 한국", "수도 한국", "the dog the"] * 9, "38%"),
        )
    ):
        path = str(tmp_path / f"{number}.tf_record")
        rows = [SentenceRow(n, line, None, 0) for n, line in enumerate(lines)]
        maker = SentenceRecords(tokenizer, 9, tuple(spec.name for spec in task.features))
        write_parts(path, task.features, maker, [rows])
        warn_of_unknown_words(path, tokenizer)
        assert (share or "") in caplog.text and bool(share) == bool(caplog.text)
