"""Options that several workflows share."""

import pytest
from tiny_runs import classifier_options

from bert_tf.workflows.options import require_one_of


def test_nothing_to_do_is_refused():
    options = classifier_options("x", train_file="x.tsv", do_train=True)
    require_one_of(options, ("do_train", "do_eval"))
    with pytest.raises(ValueError, match="give at least one of --do_eval, --do_predict"):
        require_one_of(options, ("do_eval", "do_predict"))
