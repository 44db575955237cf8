# TensorFlow Serving with one exported model, for raw text. EXPORT is the folder with the versions: served/mrpc
# for an export in served/mrpc/1. MODEL_NAME is the last part of it, which the requests for warming up name.
#
#     docker build -f docker/serving.Dockerfile --build-arg EXPORT=served/mrpc --build-arg MODEL_NAME=mrpc -t bert_server .
#     docker run -p 8501:8501 bert_server
#
# docs/serving.md has the versions that were proven. Never built or run by the authors, who have no Docker.
FROM tensorflow/serving:2.19.1
ARG EXPORT=served/mrpc
ARG MODEL_NAME=mrpc
COPY ${EXPORT} /models/${MODEL_NAME}
# Each kernel is packed once instead of in every call.
ENV MODEL_NAME=${MODEL_NAME} TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1
