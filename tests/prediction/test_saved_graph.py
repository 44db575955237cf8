"""A SavedModel whose graph reaches files is rejected before it is loaded."""

import shutil

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import bert_tf
from bert_tf.prediction.saved_graph import _REACHES_OUT, check_graph

# Operations that read or write files, run Python, or talk to other processes.
REACHING = (
    "WriteFile",
    "ReadFile",
    "MatchingFiles",
    "PrintV2",
    "Print",
    "PyFunc",
    "PyFuncStateless",
    "EagerPyFunc",
    "SaveV2",
    "RestoreV2",
    "MergeV2Checkpoints",
    "Save",
    "SaveSlices",
    "SaveDatasetV2",
    "TFRecordDatasetV2",
    "DatasetToTFRecord",
    "SnapshotDatasetV2",
    "TextLineDataset",
    "FixedLengthRecordDatasetV2",
    "WholeFileReaderV2",
    "ReaderReadV2",
    "RecordInput",
    "IteratorV2",
    "InitializeTableFromTextFileV2",
    "LoadAndRemapMatrix",
    "FixedUnigramCandidateSampler",
    "DebugIdentityV3",
    "CreateSummaryFileWriter",
    "WriteRawProtoSummary",
    "ImportEvent",
    "FileSystemSetConfiguration",
    "RemoteCall",
    "Send",
    "Recv",
    "CollectiveReduceV2",
    "DistributedSave",
    "InfeedEnqueue",
    "SqlDataset",
    "DataServiceDatasetV4",
)


@pytest.fixture
def changed(exported, tmp_path):
    """Return a function that changes the graph of an export's copy, and the copy."""
    folder = shutil.copytree(exported.single, tmp_path / "copy")
    path = folder / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())

    def write(change):
        change(model.meta_graphs[0])
        path.write_bytes(model.SerializeToString())
        return str(folder)

    return write


def saving_function(graph):
    found = graph.graph_def.library.function
    return next(f.signature.name for f in found if "traced_save" in f.signature.name)


def computing_node(graph, op):
    functions = graph.graph_def.library.function
    return next(
        node
        for function in functions
        if "traced" not in function.signature.name
        for node in function.node_def
        if node.op == op
    )


def test_an_export_is_accepted(exported):
    check_graph(str(exported.single))
    check_graph(str(exported.pair))


def test_operations_that_reach_out_are_recognized():
    assert [name for name in REACHING if not hasattr(tf.raw_ops, name)] == []
    assert [name for name in REACHING if not _REACHES_OUT.search(name)] == []


def test_a_graph_that_writes_a_file_is_rejected_before_it_runs(tmp_path, exported):
    class Hostile(tf.Module):
        def __init__(self):
            super().__init__()
            self.there = tf.Variable(1.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text_a")])
        def serve(self, text_a):
            tf.io.write_file(str(tmp_path / "written"), "by a stranger")
            return {"logits": self.there * tf.ones([tf.size(text_a), 2])}

    hostile = Hostile()
    folder = str(shutil.copytree(exported.single, tmp_path / "copy"))
    tf.saved_model.save(hostile, folder, signatures={"serving_default": hostile.serve})
    with pytest.raises(
        ValueError, match=r"copy/saved_model.pb has the operation WriteFile, which may"
    ):
        bert_tf.load(folder).predict(["a text"])
    assert not (tmp_path / "written").exists()


def test_an_operation_outside_of_functions_is_rejected(changed):
    folder = changed(lambda graph: graph.graph_def.node.add(name="hidden", op="PyFunc"))
    with pytest.raises(ValueError, match="operation PyFunc"):
        check_graph(folder)


@pytest.mark.parametrize("way", ["attribute", "operation", "in a list", "object"])
def test_the_functions_of_the_saver_may_not_be_called_otherwise(changed, way):
    def change(graph):
        name, node = saving_function(graph), computing_node(graph, "Identity")
        if way == "attribute":
            node.attr["f"].func.name = name
        elif way == "operation":
            node.op = name
        elif way == "in a list":
            node.attr["g"].func.attr["f"].list.func.add(name=name)
        else:
            graph.object_graph_def.nodes.add().bare_concrete_function.concrete_function_name = name

    with pytest.raises(ValueError, match=r"operation (SaveV2|MergeV2Checkpoints|ShardedFilename)"):
        check_graph(changed(change))


def test_the_saver_of_a_graph_without_objects_is_rejected(changed):
    """TensorFlow loads such a graph as one of TF1, and runs the operation that restores."""
    with pytest.raises(ValueError, match=r"operation (SaveV2|RestoreV2|ShardedFilename)"):
        check_graph(changed(lambda graph: graph.ClearField("object_graph_def")))
