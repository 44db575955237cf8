/* Asks a SavedModel through TensorFlow's C API: strings in, numbers out. No Python, no bert_tf.
 *
 *   serve FOLDER LIBRARY OUTPUT NUM_OUTPUTS NUM_INPUTS INPUT... TEXT...
 *
 * LIBRARY holds the custom operations ("" for none). OUTPUT and INPUT are names of operations in the graph
 * ("serving_default_text_a"); of OUTPUT the first NUM_OUTPUTS tensors are fetched, and those of float32
 * are printed: per line its index, its shape, a colon, its values. For each INPUT there are as many
 * TEXTs as rows: first all of the first input, then all of the second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) {
    fprintf(stderr, "%s: %s\n", what, TF_Message(status));
    exit(1);
  }
}

static TF_Tensor* strings(char** texts, int64_t rows) {
  TF_Tensor* tensor = TF_AllocateTensor(TF_STRING, &rows, 1, rows * sizeof(TF_TString));
  TF_TString* values = TF_TensorData(tensor);
  for (int64_t row = 0; row < rows; ++row) {
    TF_StringInit(&values[row]);
    TF_StringCopy(&values[row], texts[row], strlen(texts[row]));
  }
  return tensor;
}

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const char *folder = argv[1], *library = argv[2], *output = argv[3];
  const int num_outputs = atoi(argv[4]), num_inputs = atoi(argv[5]);
  char **names = argv + 6, **texts = argv + 6 + num_inputs;
  const int rows = (argc - 6 - num_inputs) / num_inputs;

  TF_Status* status = TF_NewStatus();
  if (*library) {
    TF_LoadLibrary(library, status);
    check(status, "TF_LoadLibrary");
  }
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, folder, tags, 1, graph, NULL, status);
  check(status, "TF_LoadSessionFromSavedModel");

  TF_Output inputs[8], outputs[8];
  TF_Tensor *values[8], *results[8];
  for (int i = 0; i < num_inputs; ++i) {
    inputs[i] = (TF_Output){TF_GraphOperationByName(graph, names[i]), 0};
    values[i] = strings(texts + i * rows, rows);
    if (!inputs[i].oper) return fprintf(stderr, "no operation %s\n", names[i]), 1;
  }
  for (int i = 0; i < num_outputs; ++i) {
    outputs[i] = (TF_Output){TF_GraphOperationByName(graph, output), i};
    if (!outputs[i].oper) return fprintf(stderr, "no operation %s\n", output), 1;
  }
  TF_SessionRun(session, NULL, inputs, values, num_inputs, outputs, results, num_outputs, NULL, 0,
                NULL, status);
  check(status, "TF_SessionRun");

  for (int i = 0; i < num_outputs; ++i) {
    if (TF_TensorType(results[i]) != TF_FLOAT) continue;
    printf("%d", i);
    for (int d = 0; d < TF_NumDims(results[i]); ++d) printf(" %lld", (long long)TF_Dim(results[i], d));
    printf(":");
    const float* numbers = TF_TensorData(results[i]);
    for (int64_t n = 0; n < TF_TensorElementCount(results[i]); ++n) printf(" %.9g", numbers[n]);
    printf("\n");
  }
  return 0;
}
