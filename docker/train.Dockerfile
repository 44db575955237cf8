# Training on GPUs. From a checkout of bert_tf:
#
#     docker build -f docker/train.Dockerfile -t bert_tf .
#     docker run --gpus all -v "$PWD/work:/work" bert_tf run_classifier --help
#
# Never built or run by the authors, who have neither Docker nor a GPU.
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir /src "tensorflow[and-cuda]>=2.20,<2.22"
WORKDIR /work
ENTRYPOINT ["python", "-m", "bert_tf"]
