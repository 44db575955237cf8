"""The step of a TPU: one XLA function of static shapes, without anything dynamic or on the host."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_training import ONE, TWO, bert_config, strategy_on

from bert_tf.data.records import RecordWriter
from bert_tf.embeddings.run_reranker import RerankingTask
from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.tasks.batches import training_batches
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.distillation import student_task
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.loop import TrainLoop
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.options import TrainingOptions
from bert_tf.training.schedules import WarmupDecay

B, S = 4, 9
LABELS = ("O", "B-X", "I-X")
TASKS = {
    "pretraining": lambda: PretrainingTask(S, 3),
    "classification": lambda: ClassificationTask(LABELS, S),
    "token_classification": lambda: TokenClassificationTask(LABELS, S),
    "crf": lambda: TokenClassificationTask(LABELS, S, crf="iob2"),
    "multiple_choice": lambda: MultipleChoiceTask(3, S),
    "question_answering": lambda: QuestionAnsweringTask(S, 2, 3),
    "embeddings": lambda: EmbeddingTask(S, 3),
    "reranking": lambda: RerankingTask(S, 3, "listwise"),
    "distilled_question_answering": lambda: student_task(QuestionAnsweringTask(S, 2, 3), 2.0),
}
LONG = {*TASKS} - {"pretraining", "embeddings"}
# Operations whose results have as many rows as the values say, and those that run on the host.
DYNAMIC = re.compile(
    r"^(Where|Unique|DynamicPartition|Ragged|SparseTo|NonMaxSuppression|ListDiff|.*PyFunc|Print"
    r"|String|Parse|Decode|Lookup|TensorArrayV3$)"
)


def trainer_of(task, devices=ONE):
    keras.utils.set_random_seed(1)
    strategy = strategy_on(devices)
    with strategy.scope():
        model = task.build_model(bert_config(dropout=0.1), dtype="mixed_bfloat16")
        optimizer = AdamWeightDecay(WarmupDecay(0.01, 25, 3))
    return TrainLoop(
        model,
        task.losses,
        strategy=strategy,
        input_names=task.input_names,
        optimizer=optimizer,
        gradient_accumulation_steps=2,
        jit_compile="false",  # on a TPU nothing within the step is compiled by itself
    )


def batches_of(task, folder, batch_size=B):
    """As on a TPU, from records of ones."""
    path = str(folder / "train.tf_record")
    with RecordWriter(path, task.record_features) as writer:
        for _ in range(2 * batch_size):
            writer.write({s.name: np.ones(s.shape, s.dtype) for s in task.record_features})
    training = TrainingOptions(output_dir=str(folder), train_batch_size=batch_size)
    return training_batches(task, [path], training, "full")


def all_nodes(graph):
    definition = graph.as_graph_def()
    return [*definition.node, *(n for f in definition.library.function for n in f.node_def)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=getattr(pytest.mark, "weekly" if n in LONG else "night"))
        for n in TASKS
    ],
)
def test_a_step_of_a_task_is_one_function_without_anything_dynamic(tmp_path, name):
    task = TASKS[name]()
    trainer, batches = trainer_of(task), batches_of(task, tmp_path)
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec.values())
    step = tf.function(
        lambda features: trainer.strategy.run(trainer.train_step.take, args=(features,)),
        jit_compile=True,
    )
    features = next(iter(batches))
    graph = step.get_concrete_function(features).graph
    assert [node.op for node in all_nodes(graph) if DYNAMIC.match(node.op)] == []
    hlo = step.experimental_get_compiler_ir(features)(stage="hlo")  # raises if XLA cannot
    assert "bf16" in hlo and "dot(" in hlo
    assert re.findall(r"\[[^\]]*<=[^\]]*\]", hlo) == []  # sizes that only the values give
    assert re.findall(r"custom-call|infeed|outfeed|send\(|recv\(", hlo) == []


@pytest.mark.night
def test_outputs_of_two_devices_are_compared_in_static_shapes(tmp_path):
    """The graph of a TPU with several cores; only the collective operations are those of CPUs."""
    task = TASKS["embeddings"]()
    trainer = trainer_of(task, TWO)
    strategy = trainer.strategy
    batches = strategy.experimental_distribute_dataset(batches_of(task, tmp_path, 2 * B))
    step = tf.function(
        lambda features: strategy.run(trainer.train_step.take, args=(features,)), autograph=False
    )
    nodes = all_nodes(step.get_concrete_function(next(iter(batches))).graph)
    shapes = [node.attr["shape"].shape for node in nodes if node.op == "EnsureShape"]
    assert all(tf.TensorShape(shape).is_fully_defined() for shape in shapes)
    rows = {shape.dim[0].size for shape in shapes}
    assert rows == {B // 2, B, 2 * B}  # of a micro-batch, of the device, of both devices


def test_an_evaluation_has_one_shape_whatever_remains(tmp_path):
    task = TASKS["classification"]()
    trainer = trainer_of(task)
    data = batches_of(task, tmp_path).unbatch().take(7).batch(3)
    traced = []

    def outputs_of(outputs, features):
        traced.append({name: value.shape for name, value in features.items()})
        return task.eval_outputs(outputs, features)

    data = data.apply(tf.data.experimental.assert_cardinality(3))
    kept = trainer.predict(data, outputs_of, 3)
    assert all(len(value) == 7 for value in kept.values())
    assert len(traced) == 1 and all(shape.is_fully_defined() for shape in traced[0].values())
