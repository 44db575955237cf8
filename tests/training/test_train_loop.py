"""The training loop: what it computes on one and two devices, resuming, evaluating, giving up."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_bit_equal, read_json_lines
from tiny_training import (
    ONE,
    TWO,
    endless,
    linear_batches,
    linear_rows,
    linear_trainer,
    offers,
    pretrainer,
    pretraining_batches,
    train,
)

from bert_tf.training.checkpoints import list_checkpoints, training_variables
from bert_tf.training.loop import TrainLoop
from bert_tf.training.schedules import WarmupDecay
from reference import optimizer as reference


def values_of(trainer):
    """Weights, moments and step, by checkpoint name."""
    named = training_variables(trainer.model, trainer.optimizer)
    return {name: variable.numpy().copy() for name, variable in named.items()}


def metrics_in(folder, kind="train"):
    return [line for line in read_json_lines(folder / "metrics.jsonl") if line["kind"] == kind]


def steps_saved(folder):
    return [path.rsplit("-", 1)[1] for path in list_checkpoints(str(folder))]


# ---- One step, and six ---------------------------------------------------------------------------


INPUT_NAMES = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
STEPS = 6


def stated_losses(model, batch):
    """Both losses of a batch, written out; the masked-LM one is a mean over all masked positions."""
    outputs = model({name: tf.constant(batch[name]) for name in INPUT_NAMES}, training=False)
    masked = tf.nn.log_softmax(outputs["masked_lm_logits"])
    chosen = tf.gather(masked, batch["masked_lm_ids"], batch_dims=2)
    weights = batch["masked_lm_weights"]
    masked_lm_loss = -tf.reduce_sum(chosen * weights) / (weights.sum() + 1e-5)
    pairs = tf.nn.log_softmax(outputs["next_sentence_logits"])
    chosen = tf.gather(pairs, batch["next_sentence_labels"], batch_dims=1)
    return masked_lm_loss, -tf.reduce_mean(chosen)


@pytest.fixture(scope="module")
def six_steps(tmp_path_factory):
    """One device, eager, and two after six steps: values and lines of metrics.jsonl of each."""
    results = []
    for devices in (ONE, TWO):
        trainer, folder = pretrainer(devices), tmp_path_factory.mktemp("six")
        tf.config.run_functions_eagerly(devices == ONE)
        batches = endless(pretraining_batches())
        train(trainer, batches, STEPS, folder, steps_per_call=1)
        results.append((values_of(trainer), metrics_in(folder)))
    return results


def assert_near(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=2e-5, err_msg=name)


@pytest.mark.usefixtures("eagerly")
def test_the_first_step_has_the_stated_loss_and_the_references_clipped_update(tmp_path):
    trainer = pretrainer(rate=0.01)
    variables = trainer.model.trainable_variables
    before = {variable.path: variable.numpy().copy() for variable in variables}
    batches = pretraining_batches()
    with tf.GradientTape() as tape:
        losses = stated_losses(trainer.model, {n: v[0] for n, v in batches.items()})
        total = tf.add_n(losses)
    gradients = tape.gradient(total, [variable.value for variable in variables])
    gradients = {
        v.path: tf.convert_to_tensor(g).numpy() for v, g in zip(variables, gradients, strict=True)
    }
    clipped, norm = reference.clip_by_global_norm(gradients, 1.0)
    assert norm > 1.1
    expected = reference.AdamWeightDecayOptimizer().update(before, clipped, 0.01)

    train(trainer, endless(batches), 1, tmp_path)

    (line,) = metrics_in(tmp_path)
    assert line["masked_lm_loss"] == pytest.approx(float(losses[0]), rel=1e-5)
    assert line["next_sentence_loss"] == pytest.approx(float(losses[1]), rel=1e-5)
    assert line["loss"] == pytest.approx(float(total), rel=1e-5)
    for variable in variables:
        np.testing.assert_allclose(variable, expected[variable.path], atol=1e-5)


def test_two_replicas_take_the_same_six_steps_as_one_device(six_steps):
    # 5 examples are 3 and 2, with 7 masked positions against 1: a mean of means would be far off.
    (expected, expected_lines), (found, found_lines) = six_steps
    for ours, theirs in zip(found_lines, expected_lines, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["masked_lm_loss"] == pytest.approx(theirs["masked_lm_loss"], rel=1e-4)
    assert_near(found, expected)


# 5 examples in 2 parts of one device (2 and 3), and in 2 of the 3 and 2 of each of two.
@pytest.mark.parametrize("devices", [ONE, pytest.param(TWO, marks=pytest.mark.weekly)])
def test_a_batch_in_parts_takes_the_same_steps_as_a_whole_one(tmp_path, six_steps, devices):
    trainer = pretrainer(devices, gradient_accumulation_steps=2)
    train(trainer, endless(pretraining_batches()), STEPS, tmp_path)
    assert trainer.step == metrics_in(tmp_path)[-1]["step"] == STEPS
    assert_near(values_of(trainer), six_steps[0][0])


@pytest.mark.night
def test_large_tables_are_learned_in_parts_in_call_after_call(tmp_path):
    """With 2 parts and tables of this size the second call failed: see training/step.py."""
    trainer = pretrainer(
        sizes={"vocab_size": 200_000, "hidden_size": 64}, gradient_accumulation_steps=2
    )
    batches = endless(pretraining_batches())
    train(trainer, batches, 3, tmp_path, steps_per_call=1)
    assert [line["step"] for line in metrics_in(tmp_path)] == [1, 2, 3]


def test_a_batch_of_one_example_is_dealt_out_to_two_replicas(tmp_path):
    kernels = []
    for devices in (ONE, TWO):
        trainer, folder = linear_trainer(devices), str(tmp_path / str(devices))
        train(trainer, endless(linear_batches(1)), 3, folder)
        kernels.append(trainer.model.kernel.numpy())
    np.testing.assert_allclose(kernels[1], kernels[0], rtol=1e-5)


def test_the_steps_and_their_rates_are_the_same_however_many_run_in_one_call(tmp_path):
    found, schedule = {}, WarmupDecay(0.5, 20, 5)
    for most in (1, 100):
        trainer, folder = linear_trainer(rate=schedule), tmp_path / str(most)
        train(trainer, endless(linear_batches(4)), 20, folder, steps_per_call=most)
        lines = metrics_in(folder)
        steps = [line["step"] for line in lines]
        sizes = np.diff([0, *steps])
        found[most] = (values_of(trainer), len(lines), sizes @ [line["loss"] for line in lines])
        assert steps[-1] == 20
        for line in lines:
            assert line["learning_rate"] == pytest.approx(float(schedule(line["step"] - 1)))
    assert_bit_equal(found[100][0], found[1][0])
    assert found[100][1] < found[1][1] == 20
    assert found[100][2] == pytest.approx(found[1][2])  # a line has the mean of its steps' losses


# ---- Checkpoints and resuming -------------------------------------------------------------------


def remove_checkpoint(folder, step):
    for file in folder.glob(f"model.ckpt-{step}.*"):
        file.unlink()


def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(tmp_path):
    batches = pretraining_batches()
    whole = pretrainer(dropout=0.3)
    inputs = {name: batches[name][0] for name in INPUT_NAMES}
    outputs = [whole.model(inputs, training=t)["next_sentence_logits"] for t in (False, True)]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4  # dropout is on
    train(whole, endless(batches), 7, tmp_path, every=5)

    remove_checkpoint(tmp_path, step=7)  # as if killed after step 5; the data repeat after 4
    goes_on = pretrainer(dropout=0.3, init_seed=99)
    assert goes_on.resume(str(tmp_path)) == goes_on.step == 5
    train(goes_on, endless(batches), 7, tmp_path, steps_per_call=1)
    assert_bit_equal(values_of(goes_on), values_of(whole))


def test_a_model_without_optimizer_knows_the_step_that_its_weights_are_from(tmp_path):
    trained = linear_trainer()
    train(trained, endless(linear_batches(2)), 3, tmp_path)
    loaded = linear_trainer()
    evaluated = TrainLoop(loaded.model, [], strategy=loaded.strategy, input_names=["x"])
    assert evaluated.step == 0
    assert evaluated.resume(str(tmp_path)) == evaluated.step == 3
    np.testing.assert_array_equal(loaded.model.kernel, trained.model.kernel)


def test_a_finished_run_does_nothing(tmp_path):
    trainer = linear_trainer()
    train(trainer, endless(linear_batches(2)), 3, tmp_path)
    before, files = values_of(trainer), sorted(tmp_path.iterdir())

    def never(step):
        raise AssertionError("The data are not needed.")

    for num_train_steps in (2, 3):
        train(trainer, never, num_train_steps, tmp_path)
    assert_bit_equal(values_of(trainer), before)
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_saves_its_step_and_goes_on_from_there(number, tmp_path):
    whole, stopped = linear_trainer(), linear_trainer()
    batches = endless(linear_batches(4))
    train(whole, batches, 12, tmp_path / "whole")

    def terminate():
        os.kill(os.getpid(), number)
        return {}

    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended:
        train(stopped, batches, 12, tmp_path / "run", evaluate=(terminate, 7, offers()))
    assert getattr(ended.value, "code", 130) == 128 + number
    assert steps_saved(tmp_path / "run") == ["7"]
    again = linear_trainer()
    assert again.resume(str(tmp_path / "run")) == 7
    train(again, batches, 12, tmp_path / "run")
    assert_bit_equal(values_of(again), values_of(whole))


def test_a_second_ctrl_c_ends_at_once(tmp_path, capfd):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        assert "Ctrl-C again ends at once" in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("still running")

    data, evaluate = endless(linear_batches(4)), (interrupt, 3, offers())
    with pytest.raises(KeyboardInterrupt):
        train(linear_trainer(), data, 9, tmp_path, evaluate=evaluate)
    assert steps_saved(tmp_path) == []


# ---- What a person sees -------------------------------------------------------------------------


def test_metrics_jsonl_has_the_losses_and_the_rate_of_each_step(six_steps):
    losses = {"loss", "masked_lm_loss", "next_sentence_loss"}
    shares = {"masked_lm_accuracy", "next_sentence_accuracy"}
    others = {"kind", "step", "gradient_norm", "learning_rate", "tokens"}
    for _, lines in six_steps:
        assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
        for line in lines:
            assert set(line) == losses | shares | others
            assert all(0 <= line[name] <= 1 for name in shares)
            total = line["masked_lm_loss"] + line["next_sentence_loss"]
            assert line["loss"] == pytest.approx(total, rel=1e-6)
            rate = reference.learning_rate(line["step"] - 1, 0.01, 25, 3)  # steps finished before
            assert line["learning_rate"] == pytest.approx(rate, rel=1e-5)


def test_a_loss_that_is_no_number_stops_the_run_and_is_not_saved(tmp_path):
    batches = linear_batches(2, num_batches=6)
    batches["target"][4] = np.inf  # the fifth step
    for period, saved in ((3, ["3"]), (100, [])):
        trainer, folder = linear_trainer(), tmp_path / str(period)
        with pytest.raises(FloatingPointError, match="learning_rate"):
            train(trainer, endless(batches), 6, folder, steps_per_call=1, every=period)
        assert trainer.step == 5
        assert steps_saved(folder) == saved
        assert [line["step"] for line in metrics_in(folder)] == [1, 2, 3, 4]


# ---- Predicting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [ONE, TWO])
def test_predictions_come_in_the_order_of_the_data_without_the_filled_examples(devices):
    trainer = linear_trainer(devices)

    def kept(outputs, features):
        return {"y": outputs["y"], "number": features["number"]}

    for count, size, most in ((1, 3, None), (7, 3, None), (6, 3, 9), (9, 4, None), (9, 2, 3)):
        rows = linear_rows(count)
        dataset = tf.data.Dataset.from_tensor_slices(rows).batch(size)
        found = trainer.predict(dataset, kept, size, max_batches=most)
        count = min(count, size * (most or count))
        assert found["number"].tolist() == list(range(count))
        np.testing.assert_allclose(found["y"], rows["x"][:count].sum(axis=1), rtol=1e-5)


def test_weights_that_tensorflow_takes_for_constant_are_not_trained(monkeypatch):
    name = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"
    for value in ("1", "true"):
        monkeypatch.setenv(name, value)
        with pytest.raises(ValueError, match=name):
            linear_trainer()
    for value in ("0", ""):
        monkeypatch.setenv(name, value)
        linear_trainer()
