/*
 * planish: compiles transformer checkpoints and ONNX graphs into verified artifacts, and runs them.
 *
 * Link with -lplanish_c. Texts are UTF-8 and end in a zero byte. A function that returns planish_code never throws: where it returns
 * another code than PLANISH_CODE_DONE, planish_error() says what failed, where, and what to do.
 *
 * All functions may be called from any thread at the same time, but for those that release something: planish_close and
 * planish_free_results take what no other call uses.
 */

#ifndef PLANISH_H
#define PLANISH_H

/* Written by `make header` from capi/src. */

#include <stddef.h>
#include <stdint.h>

/**
 * What became of a call: the exit codes of the command `planish`.
 */
typedef enum {
  /**
   * It did what it was asked for.
   */
  PLANISH_CODE_DONE = 0,
  /**
   * It failed: a file is missing or malformed, or a model does not take its inputs.
   */
  PLANISH_CODE_FAILED = 1,
  /**
   * The call cannot be carried out by any files: an argument is NULL, or a recipe asks for what planish does not have.
   */
  PLANISH_CODE_USAGE = 2,
  /**
   * An artifact is not what its source is.
   */
  PLANISH_CODE_VERIFICATION_FAILED = 3,
  /**
   * A runtime, such as the library of ONNX Runtime, was not found or is too old.
   */
  PLANISH_CODE_UNAVAILABLE = 4,
} planish_code;

/**
 * The type of an element. Numbers are in the byte order of the machine.
 */
typedef enum {
  /**
   * A type that this interface has no tensors of. Inputs that have it cannot be given.
   */
  PLANISH_DTYPE_OTHER = 0,
  /**
   * A byte, 0 or 1.
   */
  PLANISH_DTYPE_BOOL = 1,
  /**
   * Signed, 8 bits.
   */
  PLANISH_DTYPE_I8 = 2,
  /**
   * Signed, 16 bits.
   */
  PLANISH_DTYPE_I16 = 3,
  /**
   * Signed, 32 bits.
   */
  PLANISH_DTYPE_I32 = 4,
  /**
   * Signed, 64 bits.
   */
  PLANISH_DTYPE_I64 = 5,
  /**
   * Unsigned, 8 bits.
   */
  PLANISH_DTYPE_U8 = 6,
  /**
   * Unsigned, 16 bits.
   */
  PLANISH_DTYPE_U16 = 7,
  /**
   * Unsigned, 32 bits.
   */
  PLANISH_DTYPE_U32 = 8,
  /**
   * Unsigned, 64 bits.
   */
  PLANISH_DTYPE_U64 = 9,
  /**
   * A float of 16 bits, IEEE 754 binary16.
   */
  PLANISH_DTYPE_F16 = 10,
  /**
   * A float of 16 bits with the exponent of F32.
   */
  PLANISH_DTYPE_BF16 = 11,
  /**
   * A float of 32 bits.
   */
  PLANISH_DTYPE_F32 = 12,
  /**
   * A float of 64 bits.
   */
  PLANISH_DTYPE_F64 = 13,
  /**
   * Texts, of a planish_port only. They are given and returned as U8 with one dimension more, the bytes of the longest text;
   * shorter ones end in zeros.
   */
  PLANISH_DTYPE_TEXT = 14,
} planish_dtype;

/**
 * An artifact that is loaded. planish_close releases it.
 */
typedef struct planish_model planish_model;

/**
 * The outputs of a run, which planish owns. planish_free_results frees them.
 */
typedef struct planish_results planish_results;

/**
 * An input or an output of a model.
 */
typedef struct {
  /**
   * Its name.
   */
  const char *name;
  /**
   * The type of its elements: a planish_dtype.
   */
  int32_t dtype;
  /**
   * The number of dimensions.
   */
  size_t rank;
  /**
   * The sizes of the dimensions, `rank` of them; -1 for one that each run chooses.
   */
  const int64_t *sizes;
} planish_port;

/**
 * A tensor: its elements in row-major order: those of the last dimension lie side by side.
 */
typedef struct {
  /**
   * The name of the input or the output.
   */
  const char *name;
  /**
   * The type of its elements: a planish_dtype.
   */
  int32_t dtype;
  /**
   * The number of dimensions; 0 for a single element.
   */
  size_t rank;
  /**
   * The sizes of the dimensions, `rank` of them. May be NULL if `rank` is 0.
   */
  const size_t *shape;
  /**
   * The elements, at any alignment. May be NULL if `bytes` is 0.
   */
  const void *data;
  /**
   * The size of all elements in bytes.
   */
  size_t bytes;
} planish_tensor;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of planish, such as "0.1.0". It is never NULL, and nobody frees it.
 */
const char *planish_version(void);

/**
 * What went wrong in the last call of this thread that returned a planish_code: "" if it returned PLANISH_CODE_DONE. The text
 * lives until the next such call of this thread. Copy it to keep it.
 */
const char *planish_error(void);

/**
 * Compiles a model into an artifact.
 *
 * `source` is the path of a checkpoint, a GGUF or ONNX file, or an artifact; names of the hub are for the command line. `folder` is
 * where the artifact goes. An artifact that is there is replaced; a folder with other files is refused.
 *
 * `recipe` has `recipe_count` texts, each as `planish compile --recipe` takes it: KEY=VALUE, say "target=onnx" or "precision=int8", or
 * the path of a file of JSON. It may be NULL if `recipe_count` is 0: target ort, in the precision of the model. Engines of TensorRT are
 * built by the command line. Warnings are not told.
 *
 * This thread works until the artifact is in its place, with others for large tensors. It keeps nothing of what it is given.
 *
 * # Safety
 * `source`, `folder` and each text end in a zero byte. `recipe` has `recipe_count` texts.
 */
planish_code planish_compile(const char *source,
                             const char *folder,
                             const char *const *recipe,
                             size_t recipe_count);

/**
 * Runs the artifact in `folder`, each of its variants, and its source, and compares what they give. Returns PLANISH_CODE_VERIFICATION_FAILED if the
 * artifact is further from its source than its precision allows.
 *
 * # Safety
 * `folder` ends in a zero byte.
 */
planish_code planish_verify(const char *folder);

/**
 * Loads the artifact in `folder` into memory and sets `*model`, which planish_close releases; to NULL if that fails.
 *
 * The library of ONNX Runtime is the one that PLANISH_ORT_LIB names, or else the one that the command `planish` finds here.
 * `threads` work on one operator; 0 leaves the number to the runtime. The model has one thread of planish beside them, which runs
 * it: calls of planish_run for one model take turns, and those for several models run at the same time.
 *
 * # Safety
 * `folder` ends in a zero byte. `model` is the address of a pointer.
 */
planish_code planish_open(const char *folder,
                          size_t threads,
                          planish_model **model);

/**
 * Releases a model and what planish_input and planish_output gave of it. Results of its runs stay. NULL is ignored.
 *
 * # Safety
 * `model` is of planish_open, was not closed before, and no other call uses it.
 */
void planish_close(planish_model *model);

/**
 * The number of inputs of a model. Some need not be given: see planish_run.
 *
 * # Safety
 * `model` is of planish_open and not closed, or NULL, which has 0.
 */
size_t planish_input_count(const planish_model *model);

/**
 * An input of a model, the first at index 0. NULL if there is none at this index. The model owns it: it lives until planish_close.
 *
 * # Safety
 * `model` is of planish_open and not closed, or NULL, which has none.
 */
const planish_port *planish_input(const planish_model *model,
                                  size_t index);

/**
 * The number of outputs of a model.
 *
 * # Safety
 * `model` is of planish_open and not closed, or NULL, which has 0.
 */
size_t planish_output_count(const planish_model *model);

/**
 * An output of a model, as planish_input gives an input.
 *
 * # Safety
 * `model` is of planish_open and not closed, or NULL, which has none.
 */
const planish_port *planish_output(const planish_model *model, size_t index);

/**
 * Runs a model on `input_count` tensors, in any order, and sets `*results`, which planish_free_results frees; to NULL if the run
 * fails.
 *
 * Tensors are found by their names and copied before the call returns. Inputs that are not given are those of a prompt without
 * padding where that decides them: a mask of ones, counted positions, segments of zeros, an empty cache. A floating-point tensor may
 * be of another floating-point type than its input.
 *
 * # Safety
 * `model` is of planish_open and not closed, or NULL, which is refused. `inputs` has `input_count` tensors, whose `name` ends in a
 * zero byte, whose `shape` has `rank` sizes and whose `data` has `bytes` bytes. `results` is the address of a pointer.
 */
planish_code planish_run(const planish_model *model,
                         const planish_tensor *inputs,
                         size_t input_count,
                         planish_results **results);

/**
 * The number of tensors that a run gave: the outputs of the model.
 *
 * # Safety
 * `results` is of planish_run and not freed, or NULL, which has 0.
 */
size_t planish_result_count(const planish_results *results);

/**
 * A tensor that a run gave, the first at index 0. NULL if there is none at this index. The results own it: it lives until
 * planish_free_results, and nobody writes to it.
 *
 * # Safety
 * `results` is of planish_run and not freed, or NULL, which has none.
 */
const planish_tensor *planish_result(const planish_results *results,
                                     size_t index);

/**
 * The tensor of this name that a run gave, as planish_result; NULL if there is none.
 *
 * # Safety
 * `results` is of planish_run and not freed, or NULL, which has none. `name` ends in a zero byte, or is NULL, which names none.
 */
const planish_tensor *planish_result_named(const planish_results *results,
                                           const char *name);

/**
 * Frees what a run gave, with all of its tensors. NULL is ignored.
 *
 * # Safety
 * `results` is of planish_run, was not freed before, and no other call uses it.
 */
void planish_free_results(planish_results *results);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLANISH_H */
