/* Asks a SavedModel through TensorFlow's C API. No Python, no bert_tf.
 *
 *   serve FOLDER LIBRARY < REQUESTS > ANSWERS
 *
 * LIBRARY contains the custom operations ("" for none). A request names operations of the graph: first the
 * outputs and their number, then the number of inputs, and for each its operation and its tensor:
 *
 *   StatefulPartitionedCall 3 1
 *   serving_default_text_a string 1 2 5 a cat 5 a dog
 *
 * A tensor is its type, its rank, its dimensions and its values; a string is its number of bytes, a space
 * and these bytes. The answer to a request is one line for each output, with its tensor.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MOST = 16 }; /* inputs or outputs of a signature, dimensions of a tensor */

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) {
    fprintf(stderr, "%s: %s\n", what, TF_Message(status));
    exit(1);
  }
}

static void expect(int holds, const char* what) {
  if (!holds) {
    fprintf(stderr, "wrong request: %s\n", what);
    exit(2);
  }
}

static TF_Output operation(TF_Graph* graph, const char* name, int index) {
  TF_Output output = {TF_GraphOperationByName(graph, name), index};
  expect(output.oper != NULL, name);
  return output;
}

static TF_Tensor* read_tensor(void) {
  char type[16];
  int rank;
  int64_t dims[MOST], size = 1;
  expect(scanf("%15s %d", type, &rank) == 2 && rank <= MOST, "a type and a rank");
  for (int d = 0; d < rank; size *= dims[d++]) expect(scanf("%" SCNd64, &dims[d]) == 1, "a dimension");
  const int is_text = strcmp(type, "string") == 0;
  expect(is_text || strcmp(type, "int32") == 0, "the type is string or int32");
  TF_Tensor* tensor = TF_AllocateTensor(is_text ? TF_STRING : TF_INT32, dims, rank,
                                        size * (is_text ? sizeof(TF_TString) : sizeof(int32_t)));
  for (int64_t n = 0; n < size; ++n) {
    if (!is_text) {
      expect(scanf("%d", (int32_t*)TF_TensorData(tensor) + n) == 1, "a number");
      continue;
    }
    size_t length;
    expect(scanf("%zu", &length) == 1 && getchar() == ' ', "a number of bytes");
    char* bytes = malloc(length + 1);
    expect(fread(bytes, 1, length, stdin) == length, "the bytes of a string");
    TF_TString* value = (TF_TString*)TF_TensorData(tensor) + n;
    TF_StringInit(value);
    TF_StringCopy(value, bytes, length);
    free(bytes);
  }
  return tensor;
}

static void print_tensor(const TF_Tensor* tensor) {
  const TF_DataType type = TF_TensorType(tensor);
  printf("%s %d", type == TF_FLOAT    ? "float32"
                  : type == TF_INT32  ? "int32"
                  : type == TF_INT64  ? "int64"
                  : type == TF_BOOL   ? "bool"
                  : type == TF_STRING ? "string"
                                      : "unknown",
         TF_NumDims(tensor));
  for (int d = 0; d < TF_NumDims(tensor); ++d) printf(" %" PRId64, TF_Dim(tensor, d));
  const void* data = TF_TensorData(tensor);
  for (int64_t n = 0; n < TF_TensorElementCount(tensor); ++n) {
    if (type == TF_FLOAT) printf(" %.9g", ((const float*)data)[n]);
    if (type == TF_INT32) printf(" %d", ((const int32_t*)data)[n]);
    if (type == TF_INT64) printf(" %" PRId64, ((const int64_t*)data)[n]);
    if (type == TF_BOOL) printf(" %d", ((const unsigned char*)data)[n]);
    if (type != TF_STRING) continue;
    const TF_TString* value = (const TF_TString*)data + n;
    printf(" %zu ", TF_StringGetSize(value));
    fwrite(TF_StringGetDataPointer(value), 1, TF_StringGetSize(value), stdout);
  }
  printf("\n");
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: serve FOLDER LIBRARY < REQUESTS\n"), 2;
  TF_Status* status = TF_NewStatus();
  if (*argv[2]) {
    TF_LoadLibrary(argv[2], status);
    check(status, "TF_LoadLibrary");
  }
  TF_Graph* graph = TF_NewGraph();
  const char* tags[] = {"serve"};
  TF_Session* session = TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[1], tags, 1,
                                                     graph, NULL, status);
  check(status, "TF_LoadSessionFromSavedModel");

  char name[256];
  int num_outputs, num_inputs;
  while (scanf("%255s %d %d", name, &num_outputs, &num_inputs) == 3) {
    expect(num_outputs <= MOST && num_inputs <= MOST, "at most 16 inputs and outputs");
    TF_Output inputs[MOST], outputs[MOST];
    TF_Tensor *values[MOST], *results[MOST];
    for (int i = 0; i < num_outputs; ++i) outputs[i] = operation(graph, name, i);
    for (int i = 0; i < num_inputs; ++i) {
      expect(scanf("%255s", name) == 1, "the operation of an input");
      inputs[i] = operation(graph, name, 0);
      values[i] = read_tensor();
    }
    TF_SessionRun(session, NULL, inputs, values, num_inputs, outputs, results, num_outputs, NULL, 0,
                  NULL, status);
    check(status, "TF_SessionRun");
    for (int i = 0; i < num_outputs; ++i) {
      print_tensor(results[i]);
      TF_DeleteTensor(results[i]);
    }
    for (int i = 0; i < num_inputs; ++i) TF_DeleteTensor(values[i]);
  }
  return 0;
}
