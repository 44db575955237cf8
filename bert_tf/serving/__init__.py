"""Models as SavedModels, TFLite and ONNX files: what leaves the trainer and is served.

served.py                     what all have in common: the model, the tokenizer, the signatures
classifier.py answerer.py tagger.py chooser.py encoder.py mask_filler.py     one file for each kind
saved_model.py warmup.py      the SavedModel, what lies beside it, requests that warm a server up
lite.py onnx.py               files for other runtimes
"""
