"""Models as SavedModels, TFLite, ONNX and OpenVINO files, for other programs to serve.

served.py                     the common base: the model, the tokenizer, the signatures
classification.py, ..., masked_lm.py, encoder.py    one file per type of task
other_names.py                signatures under the names of other libraries
preprocessing.py              texts to the ids of a TF Hub encoder
saved_model.py warmup.py      the SavedModel, the files next to it, warm-up requests
server_versions.py            versions of TensorFlow that load them
lite.py onnx.py openvino.py   files for other runtimes
quantization.py               8 bits in a SavedModel; calibration.py: ids to calibrate them
onnx_text.py onnx_int8.py     text and 8 bits in ONNX files; onnx_nodes.py: construction of graphs
"""
