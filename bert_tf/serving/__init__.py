"""Models as SavedModels, TFLite and ONNX files, for other programs to serve.

served.py                     the common base: the model, the tokenizer, the signatures
classification.py, ..., masked_lm.py, encoder.py    one file per type of task
saved_model.py warmup.py      the SavedModel, the files next to it, warm-up requests
lite.py onnx.py               files for other runtimes
"""
