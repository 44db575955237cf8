"""What one types first: `load`, `from_pretrained`, `save_pretrained`, tokenizer and preprocessor."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_checkpoints import CONFIG, arrays_of, huggingface_tensors, write_huggingface, write_tf1

import bert_tf
from bert_tf.model_files import read_task
from bert_tf.modeling import fused
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##b", "ä"]
TEXTS = ["a ab c", "ff"]
PAIRS = ["b", "c d"]


@pytest.fixture
def tf1(tmp_path):
    """A TF1 folder with a classifier of 3 labels and its vocabulary."""
    folder = tmp_path / "tf1"
    write_tf1(folder, arrays_of("classifier", num_labels=3))
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    return str(folder)


@pytest.fixture
def huggingface(tmp_path):
    """A folder as current `transformers` writes it: no vocab.txt, cased, three labels."""
    pytest.importorskip("safetensors", reason="of the extra [hf]")
    folder = tmp_path / "hf"
    write_huggingface(
        folder,
        huggingface_tensors(arrays_of("classifier", num_labels=3)),
        architectures=["BertForSequenceClassification"],
        id2label={"0": "neg", "1": "neu", "2": "pos"},
    )
    tokenizer = {
        "normalizer": {"type": "BertNormalizer", "lowercase": False},
        "model": {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(TOKENS)}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(folder)


def test_every_public_name_is_found_in_its_module():
    for name in bert_tf.__all__:
        assert getattr(bert_tf, name) is not None


def test_the_tokenizer_makes_padded_batches_of_pairs_and_reads_them_back():
    tokenizer = bert_tf.FullTokenizer(TOKENS)
    batch = tokenizer(TEXTS, PAIRS)
    assert batch["input_ids"].tolist() == [[2, 5, 5, 11, 7, 3, 6, 3], [2, 1, 3, 7, 8, 3, 0, 0]]
    assert batch["input_mask"].tolist() == [[1] * 8, [1] * 6 + [0] * 2]
    assert batch["segment_ids"].tolist() == [[0] * 6 + [1] * 2, [0] * 3 + [1] * 3 + [0] * 2]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
    assert tokenizer.decode(batch["input_ids"]) == ["a ab c b", "[UNK] c d"]
    assert tokenizer.decode(list(batch["input_ids"])) == ["a ab c b", "[UNK] c d"]
    assert tokenizer.decode(tf.ragged.constant([[5, 6], [7]])) == ["a b", "c"]
    assert tokenizer.decode(tf.constant([2, 5, 3]), skip_special_tokens=False) == "[CLS] a [SEP]"


def test_the_tokenizer_truncates_and_pads_to_a_length():
    tokenizer = bert_tf.FullTokenizer(TOKENS)
    assert tokenizer("a b c d", max_length=4)["input_ids"].tolist() == [[2, 5, 6, 3]]
    padded = tokenizer(["a"], max_length=5, pad_to_max_length=True)
    assert padded["input_ids"].tolist() == [[2, 5, 3, 0, 0]]
    assert tokenizer([])["input_ids"].shape == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([1],), "`texts`"),
        (({"text": ["a"]},), "`texts`"),
        ((["a"], [None]), "`pairs`"),
        ((["a"], ["b", "c"]), "argument 2"),
    ],
)
def test_the_tokenizer_names_what_is_wrong(arguments, name):
    with pytest.raises((TypeError, ValueError), match=name):
        bert_tf.FullTokenizer(TOKENS)(*arguments)


def test_a_tokenizer_is_found_with_its_case(huggingface, tf1):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(huggingface)
    assert (list(tokenizer.vocab), tokenizer.do_lower_case) == (TOKENS, False)
    assert list(bert_tf.FullTokenizer.from_pretrained(f"{tf1}/bert_model.ckpt").vocab) == TOKENS
    with pytest.raises(FileNotFoundError, match="nowhere"):
        bert_tf.FullTokenizer.from_pretrained("nowhere/at/all")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("abc", r"`labels` is 'abc'"),
        ({"a"}, r"`labels` is \{'a'\}"),
    ],
)
def test_labels_that_are_no_list_of_names_are_refused(tf1, labels, message):
    kind = bert_tf.BertForSequenceClassification
    for make in (
        lambda: kind(CONFIG, labels=labels),
        lambda: kind.from_pretrained(tf1, labels=labels),
    ):
        with pytest.raises(TypeError, match=message):
            make()


def test_the_preprocessor_equals_the_tokenizer_in_tf_data_and_after_saving(tf1):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(tf1)
    preprocessor = bert_tf.TextPreprocessor.from_pretrained(tf1, max_length=7)
    expected = tokenizer(TEXTS, PAIRS, max_length=7, pad_to_max_length=True)
    copy = bert_tf.TextPreprocessor.from_config(preprocessor.get_config())
    for layer in (preprocessor, copy):
        dataset = tf.data.Dataset.from_tensor_slices(((TEXTS, PAIRS), [0, 1])).batch(2).map(layer)
        (found, labels) = next(iter(dataset))
        assert dataset.element_spec[0]["input_ids"].shape.as_list() == [None, 7]
        assert labels.numpy().tolist() == [0, 1]
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    eager = preprocessor(TEXTS)["input_ids"]
    np.testing.assert_array_equal(
        eager, tokenizer(TEXTS, max_length=7, pad_to_max_length=True)["input_ids"]
    )


def test_two_vocabularies_of_different_models_are_refused(huggingface, tmp_path):
    path = tmp_path / "hf" / "vocab.txt"
    path.write_text("\n".join(reversed(TOKENS)) + "\n", encoding="utf-8")
    for load in (bert_tf.FullTokenizer.from_pretrained, bert_tf.load):
        with pytest.raises(ValueError, match=r"vocab.txt and tokenizer.json.*\[PAD\]"):
            load(huggingface)


@pytest.mark.parametrize(
    "texts", [[("a", "b"), ("c", "d")], tf.constant([["a", "b"], ["c", "d"]]), ("a", "b", "c")]
)
def test_the_preprocessor_takes_no_list_of_pairs(texts):
    preprocessor = bert_tf.TextPreprocessor(TOKENS, max_length=7)
    with pytest.raises(ValueError, match=r"pairs|expected 2"):
        preprocessor(texts)
    assert preprocessor([])["input_ids"].shape == (0, 7)
    assert preprocessor([["a"], ["b"]])["input_ids"].shape[0] in (1, 2)


def test_the_preprocessor_takes_no_strings_as_labels():
    preprocessor = bert_tf.TextPreprocessor(TOKENS, max_length=7)
    with pytest.raises(TypeError, match="`y`"):
        tf.data.Dataset.from_tensor_slices((TEXTS, PAIRS)).batch(2).map(preprocessor)


def test_the_preprocessor_may_pad_to_the_longest_of_a_batch_and_checks_its_arguments():
    preprocessor = bert_tf.TextPreprocessor(TOKENS, max_length=64, pad_to_max_length=False)
    assert preprocessor(["a b"])["input_ids"].shape == (1, 8)
    with pytest.raises(ValueError, match="`max_length` is 2"):
        bert_tf.TextPreprocessor(TOKENS, max_length=2)
    with pytest.raises(ValueError, match=f"token '{TOKENS[-1]}' more than once"):
        bert_tf.TextPreprocessor([*TOKENS, TOKENS[-1]], max_length=7)


def test_fit_on_strings_with_one_loss(tf1):
    preprocessor = bert_tf.TextPreprocessor.from_pretrained(tf1, max_length=7)
    model = bert_tf.BertForSequenceClassification.from_pretrained(tf1, num_labels=2)
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1])).batch(2).map(preprocessor)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with fused.fused_parts(False):
        model.compile(optimizer="sgd", loss=loss, jit_compile=False)
        history = model.fit(dataset, epochs=1, verbose=0).history
    assert np.isfinite(history["loss"][0])


def test_a_model_keeps_the_head_and_the_labels_of_its_checkpoint(huggingface, tf1):
    model = bert_tf.BertForSequenceClassification.from_pretrained(huggingface)
    assert model.labels == ("neg", "neu", "pos")
    assert not model.load_report.missing
    assert bert_tf.BertForSequenceClassification.from_pretrained(tf1).num_labels == 3

    swapped = bert_tf.BertForSequenceClassification.from_pretrained(
        huggingface, labels=["pos", "neg", "neu"]
    )
    batch = bert_tf.FullTokenizer(TOKENS)(TEXTS)
    expected = model(batch)["logits"].numpy()[:, [2, 0, 1]]
    np.testing.assert_allclose(swapped(batch)["logits"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("SequenceClassification", {"num_labels": 5}, "head has 3 labels, the model's 5."),
        (
            "SequenceClassification",
            {"labels": ["a", "b", "c"]},
            "head are neg, neu, pos, the model's are a, b, c.",
        ),
        ("TokenClassification", {}, "head is for classification, the model's for token_"),
        ("MaskedLM", {}, "The checkpoint has no such head."),
    ],
)
def test_the_reason_for_a_new_head_is_a_warning(huggingface, caplog, name, given, reason):
    model = getattr(bert_tf, f"BertFor{name}").from_pretrained(huggingface, **given)
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"the head of BertFor{name} is new, with random values" in message
    assert reason in message and reason in model.load_report.summary()


def test_a_subclass_has_the_head_of_its_base(tf1, tmp_path, caplog):
    class Tagger(bert_tf.BertForTokenClassification):
        pass

    class Mine(bert_tf.BertForSequenceClassification):
        def __init__(self, config, **kwargs):
            super().__init__(config, **kwargs)

        def call(self, inputs, training=None):
            return super().call(inputs, training)

    class Fixed(bert_tf.BertForSequenceClassification):
        def __init__(self, config):
            super().__init__(config, num_labels=3)
            self.extra = keras.layers.Dense(2, name="extra")
            self.extra.build((None, 3))

    class Three(bert_tf.BertForSequenceClassification):
        def __init__(self, config, **kwargs):
            super().__init__(config, num_labels=3, **kwargs)

    assert Three.from_pretrained(tf1).num_labels == 3
    task = {"task": "classification", "labels": ["x", "y", "z"], "max_seq_length": 5}
    (Path(tf1) / "task.json").write_text(json.dumps(task))
    assert Three.from_pretrained(tf1).labels == ("x", "y", "z")
    assert Tagger.from_pretrained(tf1).load_report.missing == ("output_weights", "output_bias")
    model = Mine.from_pretrained(tf1)
    assert model.labels == ("x", "y", "z") and not model.load_report.missing
    caplog.clear()
    model.save_pretrained(tmp_path / "mine", bert_tf.FullTokenizer(TOKENS), format="tf1")
    assert "Mine is written as BertForSequenceClassification" in caplog.text
    assert bert_tf.load(tmp_path / "mine").task.arguments() == model.task.arguments()
    fixed = Fixed.from_pretrained(tf1)
    assert fixed.load_report.missing == ("extra/kernel", "extra/bias")
    with pytest.raises(TypeError, match="extra/kernel, extra/bias"):
        fixed.save_pretrained(tmp_path / "fixed", format="tf1")


def test_labels_in_another_order_keep_the_crf(tmp_path):
    labels = ("O", "B-X", "I-X")
    model = TokenClassificationTask(labels, 7, crf="iob2").build_model(CONFIG)
    model.crf.transitions.assign(np.arange(16, dtype=np.float32).reshape(4, 4))
    model.save_pretrained(tmp_path / "saved", bert_tf.FullTokenizer(TOKENS), format="tf1")
    cls, batch = bert_tf.BertForTokenClassification, bert_tf.FullTokenizer(TOKENS)(TEXTS)
    swapped = cls.from_pretrained(tmp_path / "saved", labels=["I-X", "O", "B-X"])
    assert not swapped.load_report.missing
    expected, found = model(batch), swapped(batch)
    np.testing.assert_allclose(
        found["logits"], expected["logits"].numpy()[..., [2, 0, 1]], atol=1e-6
    )
    order = [2, 0, 1, 3]
    ours, theirs = found["transitions"], expected["transitions"].numpy()[:, order][..., order]
    np.testing.assert_array_equal(ours, theirs)
    other = cls.from_pretrained(tmp_path / "saved", labels=["O", "B-Y", "I-Y"])
    assert other.crf is None and other.load_report.new_head


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3)])
def test_a_new_head_of_another_size_has_its_own_problem_type(tmp_path, before, after):
    pytest.importorskip("safetensors", reason="of the extra [hf]")
    kind, tokenizer = bert_tf.BertForSequenceClassification, bert_tf.FullTokenizer(TOKENS)
    kind(CONFIG, num_labels=before).save_pretrained(tmp_path / "before", tokenizer)
    model = kind.from_pretrained(tmp_path / "before", num_labels=after)
    model.save_pretrained(tmp_path / "after", tokenizer)
    expected = "regression" if after == 1 else "single_label"
    assert bert_tf.load(tmp_path / "after").task.kind.name == expected


def test_a_run_of_ones_own_task_can_be_the_beginning_of_another(tf1, huggingface):
    for folder in (tf1, huggingface):
        (Path(folder) / "task.json").write_text('{"task": "counting"}')
        model = bert_tf.BertForTokenClassification.from_pretrained(folder, labels=["O", "B-x"])
        assert model.labels == ("O", "B-x")
        assert not any(name.startswith("bert/") for name in model.load_report.missing)


def test_a_masked_lm_answers_at_every_position_or_at_some(tmp_path):
    write_tf1(tmp_path, arrays_of("masked_lm"))
    model = bert_tf.BertForMaskedLM.from_pretrained(str(tmp_path))
    assert not model.load_report.missing
    inputs = {"input_ids": np.array([[2, 5, 6, 3]])}
    every = model(inputs)["masked_lm_logits"]
    assert every.shape == (1, 4, CONFIG.vocab_size)
    some = model({**inputs, "masked_lm_positions": np.array([[2]])})["masked_lm_logits"]
    np.testing.assert_allclose(some[:, 0], every[:, 2], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "arguments", "format"),
    [
        ("BertModel", {}, "tf1"),
        ("BertForPreTraining", {}, "huggingface"),
        ("BertForMaskedLM", {}, "tf1"),
        ("BertForSequenceClassification", {"labels": ("x", "y", "z")}, "huggingface"),
        ("BertForTokenClassification", {"labels": ("O", "B-x")}, "tf1"),
        ("BertForQuestionAnswering", {}, "huggingface"),
        ("BertForMultipleChoice", {}, "huggingface"),
    ],
)
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path, name, arguments, format):
    pytest.importorskip("safetensors", reason="of the extra [hf]")
    cls, folder = getattr(bert_tf, name), tmp_path / "saved"
    model = cls(CONFIG, **arguments)
    model.save_pretrained(folder, bert_tf.FullTokenizer(TOKENS), format=format)
    loaded = cls.from_pretrained(folder)
    assert not loaded.load_report.missing
    assert getattr(loaded, "labels", None) == arguments.get("labels")
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)
    assert list(bert_tf.FullTokenizer.from_pretrained(folder).vocab) == TOKENS
    with pytest.raises(ValueError, match=r"`folder`.*not empty"):
        model.save_pretrained(folder)


@pytest.mark.parametrize("format", ["huggingface", "tf1"])
def test_a_problem_type_is_kept_by_folders_and_keras_files(tmp_path, format):
    pytest.importorskip("safetensors", reason="of the extra [hf]")
    kind, tokenizer = bert_tf.BertForSequenceClassification, bert_tf.FullTokenizer(TOKENS)
    given = {"labels": ("x", "y", "z"), "problem_type": "multi_label_classification"}
    model = kind(CONFIG, **given)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.problem_type == "multi_label_classification"
    again.save_pretrained(tmp_path / "saved", tokenizer, format=format)
    loaded = kind.from_pretrained(tmp_path / "saved")
    assert loaded.problem_type == "multi_label_classification"
    predictor = bert_tf.load(tmp_path / "saved")
    assert predictor.model.problem_type == "multi_label_classification"
    (answer,) = predictor.predict(["a"])
    logits = model(predictor.tokenizer(["a"]))["logits"].numpy()[0]
    expected = (1 / (1 + np.exp(-logits))).tolist()
    assert list(answer["probabilities"].values()) == pytest.approx(expected, abs=1e-5)

    single = kind.from_pretrained(tmp_path / "saved", problem_type="single_label_classification")
    single.save_pretrained(tmp_path / "single", tokenizer, format=format)
    assert bert_tf.load(tmp_path / "single").task.kind.name == "single_label"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id2label": {"0": "u", "1": "v", "2": "w"}}, "x, y, z.* u, v, w"),
        ({"architectures": ["BertForTokenClassification"]}, "TokenClassification"),
    ],
)
def test_a_config_that_contradicts_the_task_is_an_error(tmp_path, changes, message):
    pytest.importorskip("safetensors", reason="of the extra [hf]")
    kind, folder = bert_tf.BertForSequenceClassification, tmp_path / "saved"
    kind(CONFIG, labels=("x", "y", "z")).save_pretrained(folder, bert_tf.FullTokenizer(TOKENS))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    for load in (bert_tf.load, kind.from_pretrained):
        with pytest.raises(ValueError, match=message):
            load(folder)
    with pytest.raises(ValueError, match=message):
        bert_tf.convert(folder, tmp_path / "converted")
    (folder / "task.json").unlink()
    assert bert_tf.load(folder).task is not None


def test_a_folder_of_transformers_is_loaded_asked_and_exported(huggingface, tmp_path):
    model = bert_tf.load(huggingface)
    assert model.task.labels == ("neg", "neu", "pos")
    assert model.tokenizer.do_lower_case is False
    (answer,) = model.predict(["a b"])
    logits = model.model(model.tokenizer(["a b"]))["logits"].numpy()[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert list(answer["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
    bert_tf.export(Path(huggingface), tmp_path / "1")
    (served,) = bert_tf.load(tmp_path / "1").predict(["a b"])
    assert served["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)
    bert_tf.convert(Path(huggingface), tmp_path / "converted", format="tf1")
    (converted,) = bert_tf.load(tmp_path / "converted").predict(["a b"])
    assert converted["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    with pytest.raises(ValueError, match=r"^max_seq_length is 99"):
        bert_tf.export(huggingface, str(tmp_path / "2"), max_seq_length=99)


@pytest.mark.parametrize(
    "name, task",
    [
        (
            "BertForSentenceEmbedding",
            EmbeddingTask(7, pooling="cls", query_prefix="q: ", document_prefix="p: ", scale=9.0),
        ),
        ("BertForSequenceClassification", ClassificationTask(("x", "y"), 7, is_pair=True)),
        ("BertForQuestionAnswering", QuestionAnsweringTask(9, 2, 3, answer_spans="characters")),
    ],
)
def test_settings_of_a_task_are_kept(tmp_path, name, task):
    cls, tokenizer = getattr(bert_tf, name), bert_tf.FullTokenizer(TOKENS)
    model = task.build_model(CONFIG)
    model.task = task
    model.save_pretrained(tmp_path / "first", tokenizer, format="tf1")
    cls.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "a", tokenizer, format="tf1")
    bert_tf.load(tmp_path / "first").model.save_pretrained(tmp_path / "b", tokenizer, format="tf1")
    for folder in ("a", "b"):
        assert read_task(str(tmp_path / folder)).arguments() == task.arguments()


def test_a_file_of_keras_and_a_clone_keep_the_settings_of_a_task(tmp_path):
    task = EmbeddingTask(7, pooling="cls", query_prefix="q: ", matryoshka_dims=(2, 4))
    model = task.build_model(CONFIG)
    model.task = task
    model.save(tmp_path / "model.keras")
    for name, again in (
        ("file", keras.saving.load_model(tmp_path / "model.keras")),
        ("clone", keras.models.clone_model(model)),
    ):
        again.save_pretrained(tmp_path / name, bert_tf.FullTokenizer(TOKENS), format="tf1")
        assert read_task(str(tmp_path / name)).arguments() == task.arguments()


def test_the_default_precision_of_load_is_not_the_global_policy(tmp_path):
    model = bert_tf.BertForSequenceClassification(CONFIG, labels=("x", "y"))
    model.save_pretrained(tmp_path / "saved", bert_tf.FullTokenizer(TOKENS), format="tf1")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        loaded = {
            name: bert_tf.load(tmp_path / "saved", precision=name) for name in (None, "float16")
        }
    finally:
        keras.config.set_dtype_policy(before)
    policies = {name: each.model.dtype_policy.name for name, each in loaded.items()}
    assert policies == {None: "float32", "float16": "float16"}


@pytest.mark.parametrize(
    ("dtype", "format"), [("bfloat16", "huggingface"), ("float16", "tf1"), ("float64", "tf1")]
)
def test_weights_of_any_precision_are_written_in_float32(tmp_path, dtype, format):
    if format == "huggingface":
        numpy_files = pytest.importorskip("safetensors.numpy", reason="of the extra [hf]")
    model = bert_tf.BertModel(CONFIG, dtype=dtype)
    model.save_pretrained(tmp_path / "saved", format=format)
    path, name = tmp_path / "saved", "bert/pooler/dense/kernel"
    if format == "tf1":
        stored = tf.train.load_checkpoint(path / "bert_model.ckpt").get_tensor(name)
    else:
        tensors = numpy_files.load_file(path / "model.safetensors")
        stored = tensors["pooler.dense.weight"].T
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, np.asarray(model.pooler.kernel).astype(np.float32))


def test_a_tokenizer_of_another_model_is_not_written(tmp_path):
    tokenizer = bert_tf.FullTokenizer([*TOKENS, "g"])
    with pytest.raises(ValueError, match="vocab_size"):
        bert_tf.BertModel(CONFIG).save_pretrained(tmp_path / "x", tokenizer, format="tf1")
    assert not (tmp_path / "x").exists()


def test_save_pretrained_says_that_a_tokenizer_is_missing(tmp_path, caplog):
    model = bert_tf.BertModel(
        bert_tf.BertConfig.from_name("tiny", vocab_size=9, num_hidden_layers=1)
    )
    model.save_pretrained(tmp_path / "folder", format="tf1")
    assert "`tokenizer`" in caplog.text
