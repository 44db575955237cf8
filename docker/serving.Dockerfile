# TensorFlow Serving with one exported model, for raw text. From the folder that contains the export, which
# is a folder with a version number, such as served/1:
#
#     docker build -f serving.Dockerfile --build-arg EXPORT=served -t bert_server .
#     docker run -p 8501:8501 bert_server
#
# docs/serving.md has the versions that were proven. Never built or run by the authors, who have no Docker.
FROM tensorflow/serving:2.19.1
ARG EXPORT=served
COPY ${EXPORT} /models/bert
# Each kernel is packed once instead of in every call.
ENV MODEL_NAME=bert TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1
