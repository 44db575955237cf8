"""The code with which a model is used, in its card."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.interop.sidecar import MODULES_FILE
from bert_tf.registry import TaskType


def use_of_ours(entry: TaskType | None, arguments: Mapping[str, Any], program: str) -> str:
    """Return the code for bert_tf.

    Args:
        entry: type of the model; None for a task of the user's.
        arguments: of its task.
        program: that trains and evaluates it, or "".
    """
    if entry is None:
        return (
            "With bert_tf and the class of its task, where `FOLDER` is this folder:\n\n```python\n"
            "from bert_tf.interop.initial import initialize\n\n"
            'model = task.build_model(config)\ninitialize(model, "FOLDER")\n```'
        )
    example = 'predict([("A text.", "Another text.")])' if arguments.get("is_pair") else entry.usage
    text = (
        "With bert_tf, where `FOLDER` is this folder:\n\n"
        "```python\nimport bert_tf\n\n"
        f'model = bert_tf.load("FOLDER")\nprint(model.{example})\n```'
    )
    if not program:
        return text
    return (
        f"{text}\n\n`{program} --do_eval --init_checkpoint=FOLDER` evaluates it on other data. "
        f"`{program} --do_train --init_checkpoint=FOLDER` trains from its weights. "
        "`export_saved_model --model_dir=FOLDER` writes a SavedModel."
    )


def use_of_others(folder: str, architecture: str | None) -> tuple[str, str]:
    """Return the library that the folder is for, and the code for it; "" for bert_tf.

    Args:
        architecture: class of transformers, if the folder has one.
    """
    if not architecture:
        if tf.io.gfile.exists(os.path.join(folder, MODULES_FILE)):
            return "sentence-transformers", _SENTENCE_TRANSFORMERS
        return "bert_tf", ""
    return "transformers", (
        "With transformers, where `FOLDER` is this folder:\n\n```python\n"
        f"from transformers import AutoTokenizer, {architecture}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
        f'model = {architecture}.from_pretrained("FOLDER")\n```\n\n'
    )


_SENTENCE_TRANSFORMERS = """With sentence-transformers, where `FOLDER` is this folder:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
print(model.encode_query(["Who won?"]) @ model.encode_document(["Denver beat Carolina."]).T)
```

"""
