"""Registration of our classes with Keras, as soon as Keras is imported.

`keras.saving.load_model` finds registered classes only. A module registers its classes on import, but
`import bert_tf` imports neither these modules nor Keras. It therefore registers placeholders that
import a class on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import Any

_MODULES = {
    "modeling.attention": "SelfAttention",
    "modeling.bert": "BertModel",
    "modeling.dropout": "Dropout",
    "modeling.embeddings": "Embeddings",
    "modeling.crf": "Crf",
    "modeling.feature_based": "LayerFeatures BertBiLstmForTokenClassification",
    "modeling.models": "BertForPreTraining BertForMaskedLM BertForSequenceClassification "
    "BertForTokenClassification BertForMultipleChoice BertForQuestionAnswering "
    "BertForSentenceEmbedding",
    "modeling.transformer": "ResidualOutput TransformerBlock",
    "text_preprocessor": "TextPreprocessor",
    "training.optimization": "AdamWeightDecay AdamW StableAdamW Lamb Muon",
    "training.schedules": "WarmupLinearDecay WarmupPolynomialDecay WarmupCosineDecay WarmupConstant "
    "WarmupStableDecay",
}
# Registered name -> module and class.
CLASSES = {
    f"bert_tf>{name}": (f"bert_tf.{module}", name)
    for module, names in _MODULES.items()
    for name in names.split()
}


class _StandIn:
    """Placeholder that imports its class at the first use of an attribute."""

    def __init__(self, module: str, name: str):
        self._place = module, name

    def __reduce__(self):
        # Unpickling asks an empty object for attributes, before it has `_place`.
        return _StandIn, self._place

    def __getattr__(self, attribute: str) -> Any:
        module, name = self._place
        return getattr(getattr(import_module(module), name), attribute)


class _KerasImport(MetaPathFinder):
    """Import hook that registers the placeholders once Keras is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                sys.meta_path.remove(self)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_with_keras() -> None:
    """Register all classes with Keras, at once or when it is imported."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _KerasImport())


def _register() -> None:
    registry = import_module("keras").saving.get_custom_objects()
    for registered, place in CLASSES.items():
        registry.setdefault(registered, _StandIn(*place))
