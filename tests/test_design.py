"""The worked example of docs/design.md: a new type of task is trained, loaded and asked."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import registry

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "cat", "."]


def blocks():
    """Return path -> code of the blocks that begin with the path of a file."""
    text = (Path(__file__).parents[1] / "docs/design.md").read_text()
    return dict(
        re.findall(r"^```python\n# (bert_tf/\S+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    )


def test_the_example_of_a_new_type_of_task_works(tmp_path, monkeypatch):
    code = blocks()
    entry = eval(code.pop("bert_tf/registry.py"), {"TaskType": registry.TaskType})
    monkeypatch.setitem(registry.TYPES, entry.name, entry)
    monkeypatch.setattr("bert_tf.model_files.TASK_NAMES", (*registry.TASK_NAMES, entry.name))
    for path, source in code.items():
        module = types.ModuleType(path.removesuffix(".py").replace("/", "."))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(source, module.__dict__)
    assert len(code) == 2

    task = entry.load("task")(8)
    ids = np.random.default_rng(1).integers(5, 9, (4, 8)).astype("int32")
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    batch |= {
        "label_ids": np.linspace(0, 1, 4, dtype="float32"),
        "is_real_example": np.ones(4, "int32"),
    }
    trainer = bert_tf.Trainer(
        task,
        output_dir=tmp_path,
        num_train_steps=2,
        config=bert_tf.BertConfig.from_name("tiny", vocab_size=len(VOCAB), num_hidden_layers=1),
        tokenizer=bert_tf.FullTokenizer(VOCAB),
        jit_compile="false",
    )
    data = tf.data.Dataset.from_tensors(batch)
    assert "eval_loss" in trainer.fit(data, evaluate=data)
    (answer,) = bert_tf.load(tmp_path).predict([("a dog .", "a cat .")])
    assert np.isfinite(answer["score"])
    with pytest.raises(ValueError, match="head=encoder"):
        bert_tf.export(tmp_path, tmp_path / "served")
    assert entry.usage in (tmp_path / "README.md").read_text()
