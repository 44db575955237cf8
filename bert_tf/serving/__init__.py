"""Models as SavedModels, TFLite and ONNX files: what leaves the trainer and is served.

served.py                     what all have in common: the model, the tokenizer, the signatures
classification.py, ..., masked_lm.py, encoder.py    one file for each type of task
saved_model.py warmup.py      the SavedModel, what lies beside it, requests that warm a server up
lite.py onnx.py               files for other runtimes
"""
