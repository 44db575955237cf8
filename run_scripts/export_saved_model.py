r"""Export a model for serving: a SavedModel that takes text, or files of other runtimes on ids.

python run_scripts/export_saved_model.py --model_dir=mrpc_output --export_dir=served/mrpc/1
python run_scripts/export_saved_model.py --model_dir=mrpc_output --export_dir=served/mrpc/2 \
    --signature=tokens --precision=bfloat16
python run_scripts/export_saved_model.py --model_dir=pretrained --export_dir=served/encoder/1 \
    --head=encoder --pooling=mean
python run_scripts/export_saved_model.py --model_dir=mrpc_output --export_dir=lite --format=tflite \
    --precision=int8

docs/serving.md describes inputs and outputs of each model, and requests to servers.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.serving.export_saved_model import ExportOptions, export_saved_model

    cli.run(ExportOptions, export_saved_model)
