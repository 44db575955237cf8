"""What one types first: `load`, `from_pretrained`, `save_pretrained`, tokenizer and preprocessor."""

import dataclasses
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import cause_of, read_task
from tiny_checkpoints import CONFIG, huggingface_tensors, write_huggingface, write_tf1

import bert_tf
from bert_tf.checkpoints.tensor_files import open_tensors
from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from reference import numpy_bert

SMALL = dataclasses.replace(CONFIG, num_hidden_layers=1)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##b", "ä"]
TOKENIZER = bert_tf.FullTokenizer(TOKENS)
TEXTS = ["a ab c", "ff"]
PAIRS = ["b", "c d"]
LABELS = {"labels": ("x", "y", "z")}
Classifier = bert_tf.BertForSequenceClassification


def arrays_of(*heads):
    return numpy_bert.random_variables(SMALL, seed=3, heads=heads, num_labels=3)


@pytest.fixture(scope="module")
def tf1(tmp_path_factory):
    """A TF1 folder with a classifier of 3 labels and its vocabulary, which is not changed."""
    folder = tmp_path_factory.mktemp("models") / "tf1"
    write_tf1(folder, arrays_of("classifier"), config=SMALL)
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def huggingface(tmp_path_factory):
    """A folder as current `transformers` writes it: no vocab.txt, cased, three labels. Not changed."""
    folder = tmp_path_factory.mktemp("models") / "hf"
    write_huggingface(
        folder,
        huggingface_tensors(arrays_of("classifier")),
        architectures=["BertForSequenceClassification"],
        id2label={"0": "neg", "1": "neu", "2": "pos"},
        num_hidden_layers=1,
    )
    tokenizer = {
        "normalizer": {"type": "BertNormalizer", "lowercase": False},
        "model": {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(TOKENS)}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(folder)


# ---- Tokenizer and preprocessor ------------------------------------------------------------------


def test_the_tokenizer_makes_padded_batches_of_pairs_and_reads_them_back():
    batch = TOKENIZER(TEXTS, PAIRS)
    assert batch["input_ids"].tolist() == [[2, 5, 5, 11, 7, 3, 6, 3], [2, 1, 3, 7, 8, 3, 0, 0]]
    assert batch["input_mask"].tolist() == [[1] * 8, [1] * 6 + [0] * 2]
    assert batch["segment_ids"].tolist() == [[0] * 6 + [1] * 2, [0] * 3 + [1] * 3 + [0] * 2]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
    for ids in (batch["input_ids"], list(batch["input_ids"])):
        assert TOKENIZER.decode(ids) == ["a ab c b", "[UNK] c d"]
    assert TOKENIZER.decode(tf.ragged.constant([[5, 6], [7]])) == ["a b", "c"]
    assert TOKENIZER.decode(tf.constant([2, 5, 3]), skip_special_tokens=False) == "[CLS] a [SEP]"
    assert TOKENIZER("a b c d", max_length=4)["input_ids"].tolist() == [[2, 5, 6, 3]]
    padded = TOKENIZER(["a"], max_length=5, pad_to_max_length=True)
    assert padded["input_ids"].tolist() == [[2, 5, 3, 0, 0]]
    assert TOKENIZER([])["input_ids"].shape == (0, 2)


def test_the_tokenizer_and_the_preprocessor_refuse_wrong_types():
    for arguments in (([1],), ({"text": ["a"]},), (["a"], [None]), (["a"], ["b", "c"])):
        with pytest.raises((TypeError, ValueError)):
            TOKENIZER(*arguments)
    preprocessor = bert_tf.TextPreprocessor(TOKENS, max_length=7)
    pairs = [[("a", "b"), ("c", "d")], tf.constant([["a", "b"], ["c", "d"]]), ("a", "b", "c")]
    for texts in pairs:
        with pytest.raises(ValueError):
            preprocessor(texts)
    with pytest.raises(TypeError):  # strings are no labels
        tf.data.Dataset.from_tensor_slices((TEXTS, PAIRS)).batch(2).map(preprocessor)
    with pytest.raises(ValueError):
        bert_tf.TextPreprocessor([*TOKENS, TOKENS[-1]], 7)


def test_a_tokenizer_is_found_with_its_case(huggingface, tf1):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(huggingface)
    assert (list(tokenizer.vocab), tokenizer.do_lower_case) == (TOKENS, False)
    assert list(bert_tf.FullTokenizer.from_pretrained(f"{tf1}/bert_model.ckpt").vocab) == TOKENS
    with pytest.raises(FileNotFoundError):
        bert_tf.FullTokenizer.from_pretrained("nowhere/at/all")


@pytest.mark.night
def test_the_preprocessor_equals_the_tokenizer_in_tf_data_and_after_saving(tf1):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(tf1)
    preprocessor = bert_tf.TextPreprocessor.from_pretrained(tf1, max_length=7)
    expected = tokenizer(TEXTS, PAIRS, max_length=7, pad_to_max_length=True)
    copy = bert_tf.TextPreprocessor.from_config(preprocessor.get_config())
    dataset = tf.data.Dataset.from_tensor_slices(((TEXTS, PAIRS), [0, 1])).batch(2).map(copy)
    assert dataset.element_spec[0]["input_ids"].shape.as_list() == [None, 7]
    (mapped, labels) = next(iter(dataset))
    assert labels.numpy().tolist() == [0, 1]
    for found in (mapped, preprocessor((TEXTS, PAIRS))):
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    assert preprocessor([])["input_ids"].shape == (0, 7)
    pair = preprocessor([["a"], ["b"]])["input_ids"].numpy()
    assert pair.tolist() == [[2, 5, 3, 6, 3, 0, 0]]
    longest = bert_tf.TextPreprocessor(TOKENS, max_length=64, pad_to_max_length=False)
    assert longest(["a b"])["input_ids"].shape == (1, 8)


def test_vocabularies_of_two_models_are_refused(huggingface, tmp_path):
    folder = shutil.copytree(huggingface, tmp_path / "hf")
    path = folder / "vocab.txt"
    path.write_text("\n".join(reversed(TOKENS)) + "\n", encoding="utf-8")
    for load in (bert_tf.FullTokenizer.from_pretrained, bert_tf.load):
        assert cause_of(load, folder) == str(path)
    with pytest.raises(ValueError, match="vocab_size"):
        bert_tf.BertModel(SMALL).save_pretrained(
            tmp_path / "x", bert_tf.FullTokenizer([*TOKENS, "g"]), format="tf1"
        )
    assert not (tmp_path / "x").exists()


# ---- The head of a checkpoint --------------------------------------------------------------------


def test_a_model_keeps_the_head_and_the_labels_of_its_checkpoint(huggingface, tf1):
    model = Classifier.from_pretrained(huggingface)
    assert model.labels == ("neg", "neu", "pos")
    assert not model.load_report.missing
    assert Classifier.from_pretrained(tf1).num_labels == 3
    swapped = Classifier.from_pretrained(huggingface, labels=["pos", "neg", "neu"])
    batch = TOKENIZER(TEXTS)
    expected = model(batch)["logits"].numpy()[:, [2, 0, 1]]
    np.testing.assert_allclose(swapped(batch)["logits"], expected, atol=1e-6)
    for labels in ("abc", {"a"}):  # no order
        for make in (
            lambda **k: Classifier(SMALL, **k),
            lambda **k: Classifier.from_pretrained(tf1, **k),
        ):
            with pytest.raises(ValueError, match="labels"):
                make(labels=labels)


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("SequenceClassification", {"num_labels": 5}, "[5, 8]"),
        ("SequenceClassification", {"labels": ["a", "b", "c"]}, "neg, neu, pos"),
        ("TokenClassification", {}, "for classification"),
        ("MaskedLM", {}, "no cls/predictions"),
    ],
)
def test_the_reason_for_a_new_head_is_a_warning(huggingface, caplog, name, given, reason):
    model = getattr(bert_tf, f"BertFor{name}").from_pretrained(huggingface, **given)
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert reason in message and reason in model.load_report.summary()


def test_a_subclass_has_the_head_of_its_base(tf1, tmp_path):
    class Mine(Classifier):
        def __init__(self, config, **kwargs):
            super().__init__(config, **kwargs)

    folder = shutil.copytree(tf1, tmp_path / "tf1")
    task = {"task": "classification", "labels": ["x", "y", "z"], "max_seq_length": 5}
    (folder / "task.json").write_text(json.dumps(task))
    model = Mine.from_pretrained(folder)
    assert model.labels == ("x", "y", "z") and not model.load_report.missing
    model.save_pretrained(tmp_path / "mine", TOKENIZER, format="tf1")
    saved = read_task(str(tmp_path / "mine"))
    assert saved.arguments() == read_task(folder).arguments()


def test_labels_in_another_order_keep_the_crf(tmp_path):
    model = TokenClassificationTask(("O", "B-X", "I-X"), 7, crf="iob2").build_model(SMALL)
    model.crf.transitions.assign(np.arange(16, dtype=np.float32).reshape(4, 4))
    model.save_pretrained(tmp_path / "saved", TOKENIZER, format="tf1")
    cls, batch = bert_tf.BertForTokenClassification, TOKENIZER(TEXTS)
    swapped = cls.from_pretrained(tmp_path / "saved", labels=["I-X", "O", "B-X"])
    assert not swapped.load_report.missing
    expected, found = model(batch), swapped(batch)
    logits = expected["logits"].numpy()[..., [2, 0, 1]]
    np.testing.assert_allclose(found["logits"], logits, atol=1e-6)
    order = [2, 0, 1, 3]
    transitions = expected["transitions"].numpy()[:, order][..., order]
    np.testing.assert_array_equal(found["transitions"], transitions)
    other = cls.from_pretrained(tmp_path / "saved", labels=["O", "B-Y", "I-Y"])
    assert other.crf is None and other.load_report.new_head


def test_a_new_head_of_another_size_has_its_own_problem_type(tmp_path):
    for before, after, kind in ((3, 1, "regression"), (1, 3, "single_label")):
        folder = tmp_path / kind
        Classifier(SMALL, num_labels=before).save_pretrained(folder / "before", TOKENIZER)
        model = Classifier.from_pretrained(folder / "before", num_labels=after)
        model.save_pretrained(folder / "after", TOKENIZER)
        assert bert_tf.load(folder / "after").task.kind.name == kind


# ---- Saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "labels", "format"),
    [
        ("Model", None, "tf1"),
        ("ForPreTraining", None, "huggingface"),
        ("ForMaskedLM", None, "tf1"),
        ("ForSequenceClassification", ("x", "y", "z"), "huggingface"),
        ("ForTokenClassification", ("x", "y", "z"), "tf1"),
        ("ForQuestionAnswering", None, "huggingface"),
        ("ForMultipleChoice", None, "huggingface"),
    ],
)
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path, name, labels, format):
    cls, folder = getattr(bert_tf, f"Bert{name}"), tmp_path / "saved"
    model = cls(SMALL, **({"labels": labels} if labels else {}))
    model.save_pretrained(folder, TOKENIZER, format=format)
    loaded = cls.from_pretrained(folder)
    assert not loaded.load_report.missing
    assert getattr(loaded, "labels", None) == labels
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)
    assert list(bert_tf.FullTokenizer.from_pretrained(folder).vocab) == TOKENS
    with pytest.raises(ValueError, match="`folder`"):  # not empty
        model.save_pretrained(folder)


@pytest.mark.parametrize("format", ["huggingface", "tf1"])
def test_a_problem_type_is_kept_by_folders_and_keras_files(tmp_path, format):
    model = Classifier(SMALL, **LABELS, problem_type="multi_label_classification")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    again.save_pretrained(tmp_path / "saved", TOKENIZER, format=format)
    loaded = Classifier.from_pretrained(tmp_path / "saved")
    predictor = bert_tf.load(tmp_path / "saved")
    for each in (again, loaded, predictor.model):
        assert each.problem_type == "multi_label_classification"
    (answer,) = predictor.predict(["a"])
    logits = model(predictor.tokenizer(["a"]))["logits"].numpy()[0]
    expected = (1 / (1 + np.exp(-logits))).tolist()
    assert list(answer["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
    problem_type = "single_label_classification"
    single = Classifier.from_pretrained(tmp_path / "saved", problem_type=problem_type)
    single.save_pretrained(tmp_path / "single", TOKENIZER, format=format)
    assert bert_tf.load(tmp_path / "single").task.kind.name == "single_label"


def test_a_config_that_contradicts_the_task_is_an_error(tmp_path):
    folder = tmp_path / "saved"
    Classifier(SMALL, **LABELS).save_pretrained(folder, TOKENIZER)
    config = json.loads((folder / "config.json").read_text())
    for changes in (
        {"id2label": {"0": "u", "1": "v", "2": "w"}},
        {"architectures": ["BertForTokenClassification"]},
    ):
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        task = str(folder / "task.json")
        assert cause_of(bert_tf.load, folder) == task
        assert cause_of(Classifier.from_pretrained, folder) == task
        assert cause_of(bert_tf.convert, folder, tmp_path / "converted") == task
    (folder / "task.json").unlink()
    assert bert_tf.load(folder).task is not None


def test_a_folder_of_transformers_is_loaded_and_converted(huggingface, tmp_path):
    model = bert_tf.load(huggingface)
    assert model.task.labels == ("neg", "neu", "pos")
    assert model.tokenizer.do_lower_case is False
    (answer,) = model.predict(["a b"])
    exp = np.exp(model.model(model.tokenizer(["a b"]))["logits"].numpy()[0])
    np.testing.assert_allclose([*answer["probabilities"].values()], exp / exp.sum(), atol=1e-5)
    bert_tf.convert(Path(huggingface), tmp_path / "converted", format="tf1")
    (converted,) = bert_tf.load(tmp_path / "converted").predict(["a b"])
    assert converted["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)


@pytest.mark.parametrize(
    "name, task",
    [
        (
            "BertForSentenceEmbedding",
            EmbeddingTask(7, pooling="cls", query_prefix="q: ", scale=9.0, matryoshka_dims=(2, 4)),
        ),
        ("BertForSequenceClassification", ClassificationTask(("x", "y"), 7, is_pair=True)),
        ("BertForQuestionAnswering", QuestionAnsweringTask(9, 2, 3, answer_spans="characters")),
    ],
)
def test_settings_of_a_task_are_kept_in_every_form(tmp_path, name, task):
    model = task.build_model(SMALL)
    model.task = task.values()
    model.save_pretrained(tmp_path / "first", TOKENIZER, format="tf1")
    model.save(tmp_path / "model.keras")
    for form, again in {
        "from_pretrained": getattr(bert_tf, name).from_pretrained(tmp_path / "first"),
        "load": bert_tf.load(tmp_path / "first").model,
        "file": keras.saving.load_model(tmp_path / "model.keras"),
        "clone": keras.models.clone_model(model),
    }.items():
        again.save_pretrained(tmp_path / form, TOKENIZER, format="tf1")
        assert read_task(str(tmp_path / form)).arguments() == task.arguments(), form


def test_the_default_precision_of_load_is_not_the_global_policy(tf1):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        loaded = {name: bert_tf.load(tf1, precision=name) for name in (None, "float16")}
    finally:
        keras.config.set_dtype_policy(before)
    policies = {name: each.model.dtype_policy.name for name, each in loaded.items()}
    assert policies == {None: "float32", "float16": "float16"}


def test_weights_of_any_precision_are_written_in_float32(tmp_path, caplog):
    for dtype, format in (("bfloat16", "huggingface"), ("float16", "tf1"), ("float64", "tf1")):
        model, path = bert_tf.BertModel(SMALL, dtype=dtype), tmp_path / dtype
        model.save_pretrained(path, format=format)
        if format == "tf1":
            reader = tf.train.load_checkpoint(path / "bert_model.ckpt")
            stored = reader.get_tensor("bert/pooler/dense/kernel")
        else:
            stored = open_tensors(str(path / "model.safetensors"))["pooler.dense.weight"].T
        assert stored.dtype == np.float32
        np.testing.assert_array_equal(stored, np.asarray(model.pooler.kernel).astype(np.float32))
    assert "`tokenizer`" in caplog.text  # is missing
