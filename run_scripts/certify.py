r"""Prove that exports answer as the model does: token ids, outputs, labels, times, hashes.

python run_scripts/certify.py --model_dir=mrpc_output --export_dir=served/mrpc/1 --input_file=pairs.txt
python run_scripts/certify.py --model_dir=mrpc_output --export_dir=served/mrpc/1,lite,onnx,mrpc_hf \
    --input_file=pairs.txt --environment=2.19:env/bin/python --output_file=certificate.html

Input: one text per line, tabs between the sentences of a pair. The exit status is 1 if an export differs
by more than --max_difference or --max_flipped.
"""

from bert_tf import cli
from bert_tf.programs.certify import certify
from bert_tf.programs.certify_options import CertifyOptions

if __name__ == "__main__":
    cli.run(CertifyOptions, certify)
