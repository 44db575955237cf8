r"""Write a SavedModel that takes raw text, from a fine-tuned classifier.

python run_scripts/export_saved_model.py --model_dir=mrpc_output --export_dir=served/mrpc/1
"""

from bert_tf import cli
from bert_tf.workflows.exporting import ExportOptions, export_saved_model

if __name__ == "__main__":
    cli.run(ExportOptions, export_saved_model)
