"""Models as SavedModels, TFLite, ONNX and OpenVINO files, for other programs to serve.

served.py                     the common base: the model, the tokenizer, the signatures
classification.py, ..., masked_lm.py, encoder.py    one file per type of task
other_names.py                signatures under the names of other libraries
saved_model.py                the SavedModel, the files next to it, warm-up requests
formats.py                    files for other runtimes
check.py                      a written export against its model
quantization.py               8 bits in a SavedModel, and the ids that calibrate them
"""
