"""Options that several workflows share."""

import pytest
from tiny_runs import classifier_options

from bert_tf.options import require_one_of


def test_nothing_to_do_is_refused():
    options = classifier_options("x", train_file="x.tsv", do_train=True)
    require_one_of(options, ("do_train", "do_eval"))
    with pytest.raises(ValueError, match="give at least one of --do_eval, --do_predict"):
        require_one_of(options, ("do_eval", "do_predict"))


def test_a_batch_cannot_be_cut_into_more_parts_than_examples():
    options = {"train_file": "x.tsv", "do_train": True, "train_batch_size": 4}
    assert classifier_options("x", **options, gradient_accumulation_steps=4)
    message = r"steps is 5, but --train_batch_size=4 .* --gradient_accumulation_steps=4 or less"
    with pytest.raises(ValueError, match=message):
        classifier_options("x", **options, gradient_accumulation_steps=5)
