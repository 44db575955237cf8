"""Files of tf-models-official with random values, for tf_models_files.py.

    env-tfmodels/bin/python benchmarks/tf_models_peer.py FOLDER

Runs in an environment with tf-models-official. FOLDER contains `tf1`, a folder of `convert_checkpoint`,
and `batch.npz`. For each case N it gets N.npz: the path of a file, the arrays of the live model and its
outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Name of the file -> head of bert_tf that computes its outputs.
CASES = {
    "converter: encoder": "encoder",
    "converter: encoder, saved as `model`": "encoder",
    "converter: pretrainer": "masked_lm",
    "TF Hub: bert_config": "encoder",
    "TF Hub: bert": "encoder",
    "TF Hub: bert_v2": "encoder",
    "TF Hub: with_mlm": "masked_lm",
    "TF Hub: with_mlm, copied pooler": "encoder",
    "checkpoint: encoder": "encoder",
    "checkpoint: BertPretrainerV2": "pretraining",
    "checkpoint: BertPretrainerV2.checkpoint_items": "masked_lm",
    "checkpoint: BertClassifier": "classification",
    "checkpoint: BertClassifier, encoder's pooler": "classification",
    "checkpoint: BertTokenClassifier": "token_classification",
    "checkpoint: BertSpanLabeler": "question_answering",
    "save_weights: BertClassifier": "classification",
    "trainer: masked_lm": "pretraining",
    "trainer: sentence_prediction": "classification",
    "trainer: tagging": "token_classification",
    "trainer: question_answering": "question_answering",
}
TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(26)))
SIZES = {
    "vocab_size": len(TOKENS),
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
NUM_LABELS = 5


def randomize(variables: list) -> None:
    """Fill variables with random values, so that a wrong name or layout changes the outputs."""
    random = np.random.default_rng(7)
    for variable in variables:
        scale = "gamma" in (getattr(variable, "path", None) or variable.name)
        variable.assign(random.normal(float(scale), 0.3, variable.shape).astype(np.float32))


class Peer:
    """Files of tf-models-official in one folder, with the arrays and outputs of their models.

    Args:
        folder: contains `tf1`, a folder of `convert_checkpoint`, and `batch.npz`.
    """

    def __init__(self, folder: Path):
        from official.legacy.bert import configs

        self.folder = folder
        self.tf1 = folder / "tf1"
        self.config = configs.BertConfig.from_json_file(str(self.tf1 / "bert_config.json"))
        batch = dict(np.load(folder / "batch.npz"))
        count, length = batch["input_ids"].shape
        self.inputs = {
            "input_word_ids": batch["input_ids"],
            "input_mask": batch["input_mask"],
            "input_type_ids": batch["segment_ids"],
        }
        self.positions = {
            "masked_lm_positions": np.tile(np.arange(length, dtype=np.int32), (count, 1))
        }

    def path(self, case: str) -> Path:
        """Return the folder for the file of a case."""
        return self.folder / str(list(CASES).index(case))

    def write(self, case: str, file: Any, variables: list, run: Callable) -> None:
        """Write the path of a file, the arrays that it must contain, and the outputs of the model."""
        distinct = {id(variable): variable for variable in variables}.values()
        arrays = {
            f"{number} {variable.name}": variable.numpy()
            for number, variable in enumerate(distinct)
            if variable.dtype == "float32"
        }
        if CASES[case] in ("pretraining", "masked_lm"):
            outputs = run({**self.inputs, **self.positions})
        else:
            outputs = run(self.inputs)
        np.savez(
            self.folder / f"{list(CASES).index(case)}.npz",
            path=str(file),
            **{f"array {name}": array for name, array in arrays.items()},
            **{f"output {name}": value for name, value in _named(CASES[case], outputs).items()},
        )

    def encoder(self, kind: str = "bert") -> Any:
        """Return a random encoder of the current library."""
        from official.nlp.configs import encoders

        encoder = encoders.build_encoder(self.encoder_config(kind))
        encoder(encoder.inputs)  # creates the variables
        randomize(encoder.variables)
        return encoder

    def encoder_config(self, kind: str = "bert") -> Any:
        from official.nlp.configs import encoders

        names = {"num_hidden_layers": "num_layers"}
        sizes = {names.get(name, name): value for name, value in SIZES.items()}
        return encoders.EncoderConfig(type=kind, **{kind: encoders.BertEncoderConfig(**sizes)})

    def write_converted(self) -> None:
        """Convert the TF1 file of bert_tf."""
        import tensorflow as tf
        from official.nlp.tools import tf2_bert_encoder_checkpoint_converter as converter

        for case, name, kind in (
            ("converter: encoder", "encoder", "encoder"),
            ("converter: encoder, saved as `model`", "model", "encoder"),
            ("converter: pretrainer", "pretrainer", "pretrainer"),
        ):
            prefix = str(self.path(case) / "bert_model.ckpt")
            source = str(self.tf1 / "bert_model.ckpt")
            converter.convert_checkpoint(self.config, prefix, source, name, kind)
            make = {
                "encoder": converter._create_bert_model,
                "pretrainer": converter._create_bert_pretrainer_model,
            }
            model = make[kind](self.config)
            checkpoint = tf.train.Checkpoint(**{name: model})
            checkpoint.restore(f"{prefix}-1").assert_existing_objects_matched()
            self.write(case, f"{prefix}-1", model.variables, model)

    def write_hub(self) -> None:
        """Export SavedModels as the publishers of TF Hub's BERTs did."""
        import tensorflow as tf
        from official.nlp.tools import export_tfhub_lib

        for case, kind, with_mlm, copied in (
            ("TF Hub: bert_config", None, False, False),
            ("TF Hub: bert", "bert", False, False),
            ("TF Hub: bert_v2", "bert_v2", False, False),
            ("TF Hub: with_mlm", "bert", True, False),
            ("TF Hub: with_mlm, copied pooler", "bert", True, True),
        ):
            if kind is None:
                model, configs = self.restored_encoder(), {"bert_config": self.config}
                items = {"encoder": model}
            else:
                model = self.pretrainer(kind) if with_mlm else self.encoder(kind)
                configs = {"encoder_config": self.encoder_config(kind)}
                items = model.checkpoint_items if with_mlm else {"encoder": model}
            prefix = tf.train.Checkpoint(**items).save(str(self.path(case) / "source" / "ckpt"))
            export = self.path(case) / "export"
            export_tfhub_lib.export_model(
                str(export),
                **configs,
                model_checkpoint_path=prefix,
                with_mlm=with_mlm,
                copy_pooler_dense_to_encoder=copied,
                vocab_file=str(self.tf1 / "vocab.txt"),
                do_lower_case=True,
            )
            loaded = tf.saved_model.load(str(export))
            variables = [*loaded.variables, *(loaded.mlm.variables if with_mlm else ())]
            self.write(case, export, variables, _callable(loaded, CASES[case]))

    def restored_encoder(self) -> Any:
        """Return the encoder with the values of the TF1 file."""
        import tensorflow as tf
        from official.nlp.tools import export_tfhub_lib

        encoder = export_tfhub_lib.get_bert_encoder(self.config)
        prefix = self.path("converter: encoder") / "bert_model.ckpt-1"
        tf.train.Checkpoint(encoder=encoder).restore(str(prefix)).assert_existing_objects_matched()
        return encoder

    def pretrainer(self, kind: str = "bert") -> Any:
        """Return a random BertPretrainerV2 with a next-sentence head."""
        from official.nlp.modeling import layers, models

        head = layers.ClassificationHead(SIZES["hidden_size"], 2, name="next_sentence")
        model = models.BertPretrainerV2(
            self.encoder(kind), mlm_activation=_gelu(), classification_heads=[head]
        )
        model({**self.inputs, **self.positions})  # creates the variables
        randomize(model.variables)
        return model

    def write_checkpoints(self) -> None:
        """Save models by tf.train.Checkpoint and by Keras."""
        import tensorflow as tf
        from official.nlp.modeling import models

        encoder, pretrainer = self.encoder(), self.pretrainer()
        classifier = models.BertClassifier(self.encoder(), NUM_LABELS, use_encoder_pooler=False)
        for case, model, items in (
            ("checkpoint: encoder", encoder, {"encoder": encoder}),
            ("checkpoint: BertPretrainerV2", pretrainer, {"model": pretrainer}),
            (
                "checkpoint: BertPretrainerV2.checkpoint_items",
                *(pretrainer, pretrainer.checkpoint_items),
            ),
            ("checkpoint: BertClassifier", classifier, {"model": classifier}),
            (
                "checkpoint: BertClassifier, encoder's pooler",
                *(models.BertClassifier(self.encoder(), NUM_LABELS), None),
            ),
            (
                "checkpoint: BertTokenClassifier",
                *(models.BertTokenClassifier(self.encoder(), NUM_LABELS), None),
            ),
            ("checkpoint: BertSpanLabeler", models.BertSpanLabeler(self.encoder()), None),
        ):
            randomize(model.variables)
            items = items or {"model": model, **model.checkpoint_items}
            prefix = tf.train.Checkpoint(**items).save(str(self.path(case) / "ckpt"))
            variables = model.variables
            if case.endswith("checkpoint_items"):  # they lack the logits of the next-sentence head
                variables = [v for v in variables if "next_sentence/logits" not in v.name]
            self.write(case, prefix, variables, model)
        prefix = self.path("save_weights: BertClassifier") / "weights"
        classifier.save_weights(str(prefix), save_format="tf")
        self.write("save_weights: BertClassifier", prefix, classifier.variables, classifier)

    def write_trained(self) -> None:
        """Train two steps with the library's trainer, which writes checkpoints with its optimizer."""
        from official.nlp.configs import bert
        from official.nlp.data import (
            pretrain_dataloader,
            question_answering_dataloader,
            sentence_prediction_dataloader,
            tagging_dataloader,
        )
        from official.nlp.tasks import masked_lm, question_answering, sentence_prediction, tagging

        data = {"input_path": "dummy", "seq_length": SIZES["max_position_embeddings"]}
        data["global_batch_size"] = 1
        encoder = self.encoder_config()
        head = bert.ClsHeadConfig(
            inner_dim=SIZES["hidden_size"], num_classes=2, name="next_sentence"
        )
        tasks = {
            "masked_lm": masked_lm.MaskedLMConfig(
                model=bert.PretrainerConfig(encoder=encoder, cls_heads=[head]),
                train_data=pretrain_dataloader.BertPretrainDataConfig(
                    **data, max_predictions_per_seq=3
                ),
            ),
            "sentence_prediction": sentence_prediction.SentencePredictionConfig(
                model=sentence_prediction.ModelConfig(num_classes=NUM_LABELS, encoder=encoder),
                train_data=sentence_prediction_dataloader.SentencePredictionDataConfig(**data),
            ),
            "tagging": tagging.TaggingConfig(
                model=tagging.ModelConfig(encoder=encoder),
                class_names=[str(number) for number in range(NUM_LABELS)],
                train_data=tagging_dataloader.TaggingDataConfig(**data),
            ),
            "question_answering": question_answering.QuestionAnsweringConfig(
                model=question_answering.ModelConfig(encoder=encoder),
                train_data=question_answering_dataloader.QADataConfig(**data),
                validation_data=None,
            ),
        }
        for name, config in tasks.items():
            case = f"trainer: {name}"
            model = self.trained(config, str(self.path(case)))
            self.write(case, self.path(case), model.variables, model)

    def trained(self, config: Any, model_dir: str) -> Any:
        """Return the model of a task after two steps from random values."""
        import tensorflow as tf
        from official.core import config_definitions, task_factory, train_lib
        from official.modeling import optimization

        task = task_factory.get_task(config)
        build_model = task.build_model

        def random_model() -> Any:
            model = build_model()
            randomize(model.variables)
            return model

        task.build_model = random_model
        trainer = config_definitions.TrainerConfig(
            train_steps=2,
            steps_per_loop=1,
            checkpoint_interval=2,
            optimizer_config=optimization.OptimizationConfig(
                {
                    "optimizer": {"type": "adamw"},
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": 1e-3}},
                }
            ),
        )
        params = config_definitions.ExperimentConfig(task=config, trainer=trainer)
        strategy = tf.distribute.get_strategy()
        model, _ = train_lib.run_experiment(strategy, task, "train", params, model_dir)
        return model


def _gelu() -> Any:
    from official.modeling import tf_utils

    return tf_utils.get_activation("gelu")


def _callable(loaded: Any, head: str) -> Callable:
    """Return a SavedModel, or its masked-LM part, as a function of arrays."""
    import tensorflow as tf

    call = loaded.mlm if head == "masked_lm" else loaded

    def run(inputs: dict[str, np.ndarray]) -> Any:
        return call({name: tf.constant(value) for name, value in inputs.items()}, training=False)

    return run


def _named(head: str, outputs: Any) -> dict[str, np.ndarray]:
    """Return outputs under the names of bert_tf."""
    if head == "encoder" and not isinstance(outputs, dict):
        outputs = dict(zip(("sequence_output", "pooled_output"), outputs, strict=True))
    if head == "classification":
        outputs = {"logits": outputs}
    if head == "question_answering" and not isinstance(outputs, dict):
        outputs = dict(zip(("start_logits", "end_logits"), outputs, strict=True))
    names = {
        "encoder": {"sequence_output": "sequence_output", "pooled_output": "pooled_output"},
        "masked_lm": {"mlm_logits": "masked_lm_logits"},
        "pretraining": {
            "mlm_logits": "masked_lm_logits",
            "next_sentence": "next_sentence_logits",
        },
        "classification": {"logits": "logits"},
        "token_classification": {"logits": "logits"},
        "question_answering": {
            "start_logits": "start_logits",
            "end_logits": "end_logits",
            "start_positions": "start_logits",
            "end_positions": "end_logits",
        },
    }[head]
    return {
        ours: np.asarray(outputs[theirs]) for theirs, ours in names.items() if theirs in outputs
    }


def main(folder: Path) -> None:
    from importlib.metadata import version

    peer = Peer(folder)
    peer.write_converted()
    peer.write_hub()
    peer.write_checkpoints()
    peer.write_trained()
    versions = (
        f"{name} {version(name)}" for name in ("tf-models-official", "tensorflow", "tf_keras")
    )
    print("there:", ", ".join(versions))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
