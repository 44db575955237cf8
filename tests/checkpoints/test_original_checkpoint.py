"""A checkpoint that the original TensorFlow 1 code wrote: every number it says is ours as well.

The checkpoint does not belong to this repository, so these tests are skipped where it is not.
"""

from pathlib import Path

import numpy as np
import pytest

from bert_tf.checkpoints.initial import initialize
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.config import BertConfig
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import BertForPreTraining
from reference import numpy_bert

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "tf1_checkpoint"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is not there")


@pytest.fixture(scope="module")
def checkpoint():
    return read_checkpoint(FOLDER)


def batch(config: BertConfig):
    rng = np.random.default_rng(0)
    length = config.max_position_embeddings
    lengths = np.array([length, 3, 11])
    shape = (len(lengths), length)
    return {
        "input_ids": rng.integers(0, config.vocab_size, shape).astype("int32"),
        "input_mask": (np.arange(length) < lengths[:, None]).astype("int32"),
        "segment_ids": rng.integers(0, config.type_vocab_size, shape).astype("int32"),
    }


def assert_close(found, expected):
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=0, atol=1e-5)


def test_it_fills_the_whole_pre_training_model_and_has_nothing_else(checkpoint):
    report = initialize(BertForPreTraining(checkpoint.config), checkpoint)
    assert (len(report.loaded), report.missing, report.unexpected) == (46, (), ())


def test_every_output_equals_the_numpy_bert(checkpoint):
    model = BertModel(checkpoint.config, output_attentions=True)
    initialize(model, checkpoint)
    inputs = batch(checkpoint.config)
    found = model(inputs)
    expected = numpy_bert.encode(checkpoint.config, checkpoint.arrays, *inputs.values())
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert_close(found[name], getattr(expected, name))
    assert_close(np.stack(found["all_encoder_layers"]), np.stack(expected.all_encoder_layers))
    assert_close(np.stack(found["attention_probs"]), np.stack(expected.attention_probs))
    model = BertForPreTraining(checkpoint.config)
    initialize(model, checkpoint)
    positions = np.array([[1, 15], [0, 2], [7, 7]], "int32")
    found = model({**inputs, "masked_lm_positions": positions})
    arguments = checkpoint.config, checkpoint.arrays, expected.sequence_output, positions
    assert_close(found["masked_lm_logits"], numpy_bert.masked_lm_logits(*arguments))
    next_sentence = numpy_bert.next_sentence_logits(checkpoint.arrays, expected.pooled_output)
    assert_close(found["next_sentence_logits"], next_sentence)
