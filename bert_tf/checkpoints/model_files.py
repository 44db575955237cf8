"""Files next to the checkpoints of a trained model: architecture, vocabulary, case and task.

    output_dir/
      model.ckpt-N.*, checkpoint    weights (training/checkpoints.py)
      bert_config.json              architecture
      vocab.txt                     vocabulary
      tokenizer_config.json         {"do_lower_case": true}
      task.json                     {"task": "classification", "max_seq_length": 128, "labels": [...]}
      README.md                     model card (report/model_card.py)
      model_card_facts.json         facts in the model card

A run writes bert_config.json to task.json before training, and the card after it. The folder is enough
for `--init_checkpoint=output_dir`, `export_saved_model` and `predict`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from bert_tf.config import BertConfig
from bert_tf.files import write_text
from bert_tf.registry import TASK_FILE
from bert_tf.tasks.base import Task

BESIDE_CHECKPOINTS = ("bert_config.json", "vocab.txt", "tokenizer_config.json", TASK_FILE)


def model_files(
    config: BertConfig | None = None,
    task: Task | None = None,
    vocab: Sequence[str] | None = None,
    do_lower_case: bool | None = None,
) -> dict[str, str]:
    """Return name -> text of the files next to the checkpoints, without those of None.

    Args:
        vocab: WordPieces in the order of their ids.
        do_lower_case: of the tokenizer.
    """
    files = {}
    if config is not None:
        files["bert_config.json"] = config.to_json_string()
    if task is not None:
        files[TASK_FILE] = json.dumps(task.values(), indent=2) + "\n"
    if vocab is not None:
        files["vocab.txt"] = "".join(f"{token}\n" for token in vocab)
    if do_lower_case is not None:
        files["tokenizer_config.json"] = json.dumps({"do_lower_case": do_lower_case}) + "\n"
    return files


def write_files(folder: str, files: Mapping[str, str]) -> None:
    """Write name -> text, such as `model_files`, into a folder."""
    for name, text in files.items():
        write_text(os.path.join(folder, name), text)
