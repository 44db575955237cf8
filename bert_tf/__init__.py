"""BERT (Devlin et al. 2019) for TensorFlow 2 and Keras 3.

Importing this package imports neither TensorFlow nor Keras; the names below are loaded when they
are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "1.0.0"

if TYPE_CHECKING:
    from bert_tf.config import BertConfig
    from bert_tf.modeling.bert import BertModel
    from bert_tf.tokenization import FullTokenizer

_HOMES = {
    "BertConfig": "bert_tf.config",
    "BertModel": "bert_tf.modeling.bert",
    "FullTokenizer": "bert_tf.tokenization",
}

__all__ = ["BertConfig", "BertModel", "FullTokenizer", "__version__"]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
