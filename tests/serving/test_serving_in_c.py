"""An exported model in a C program: the libraries of TensorFlow and tensorflow-text, nothing else."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

TENSORFLOW = Path(tf.sysconfig.get_lib())
OPERATION = Path(tensorflow_text.__file__).parent / "python/ops/_fast_wordpiece_tokenizer.so"
FIRSTS = ("the happy cat in the barn", "", "The HÄPPY cât 猫", "calm dog " * 300)
SECONDS = ("a hen in the barn", "a pig", "", "sad 😀 dog")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler (cc, gcc or clang)")
    binary = tmp_path_factory.mktemp("c") / "serve"
    source = Path(__file__).with_name("serve.c")
    libraries = ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    command = [compiler, "-o", binary, source, f"-I{tf.sysconfig.get_include()}"]
    command += [f"-L{TENSORFLOW}", *libraries, f"-Wl,-rpath,{TENSORFLOW}"]
    subprocess.run(command, check=True)
    return binary


def signature_of(folder):
    content = (Path(folder) / "saved_model.pb").read_bytes()
    return SavedModel.FromString(content).meta_graphs[0].signature_def["serving_default"]


def ask(program, folder, library=OPERATION, **texts):
    """What the program prints: output index -> array."""
    signature = signature_of(folder)
    inputs = [signature.inputs[name].name.split(":")[0] for name in texts]
    (output,) = {spec.name.split(":")[0] for spec in signature.outputs.values()}
    words = [text for column in texts.values() for text in column]
    arguments = [folder, library, output, len(signature.outputs), len(inputs), *inputs, *words]
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        (index, *shape), values = (part.split() for part in line.split(":"))
        found[int(index)] = np.array(values, np.float32).reshape([int(n) for n in shape])
    return {
        name: found[int(spec.name.split(":")[1])]
        for name, spec in signature.outputs.items()
        if int(spec.name.split(":")[1]) in found
    }


@pytest.mark.parametrize("kind", ["single", "pair"])
def test_strings_go_in_and_the_probabilities_that_python_gets_come_out(program, exported, kind):
    folder = getattr(exported, kind)
    texts = {"text_a": FIRSTS} | ({"text_b": SECONDS} if kind == "pair" else {})
    found = ask(program, folder, **texts)
    function = tf.saved_model.load(str(folder)).signatures["serving_default"]
    expected = function(**{name: tf.constant(column) for name, column in texts.items()})
    assert sorted(found) == ["logits", "probabilities"]
    for name, values in found.items():
        assert values.shape == (4, 2)
        np.testing.assert_allclose(values, expected[name].numpy(), rtol=0, atol=1e-6)


def test_without_the_operation_the_error_names_it(program, exported):
    with pytest.raises(AssertionError, match="FastWordpieceTokenizeWithOffsets"):
        ask(program, exported.single, library="", text_a=FIRSTS)
