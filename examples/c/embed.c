/* Compiles a text encoder, runs it on the ids of tokens, and prints the beginning of each result:
 *
 *     gcc embed.c -I capi/include -L target/release -lplanish_c -o embed
 *     LD_LIBRARY_PATH=target/release ./embed .deps/minilm minilm-ort 101 7592 2088 102
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "planish.h"

static int failed(planish_code code, const char *what) {
    fprintf(stderr, "embed: cannot %s (code %d): %s\n", what, (int)code, planish_error());
    return code;
}

static void print_port(const char *kind, const planish_port *port) {
    printf("%s %s, dtype %" PRId32 ", [", kind, port->name, port->dtype);
    for (size_t axis = 0; axis < port->rank; axis++) {
        printf("%s%" PRId64, axis == 0 ? "" : ", ", port->sizes[axis]);
    }
    printf("]\n");
}

static void print_tensor(const planish_tensor *tensor) {
    printf("%s: %zu bytes", tensor->name, tensor->bytes);
    if (tensor->dtype == PLANISH_DTYPE_F32) {
        const float *numbers = tensor->data;
        for (size_t index = 0; index < 4 && index < tensor->bytes / sizeof *numbers; index++) {
            printf(" %.6f", numbers[index]);
        }
    }
    printf("\n");
}

int main(int count, char **words) {
    if (count < 4) {
        fprintf(stderr, "give a checkpoint, a folder for the artifact, and ids of tokens\n");
        return PLANISH_CODE_USAGE;
    }
    const char *folder = words[2];
    printf("planish %s\n", planish_version());
    planish_code code = planish_compile(words[1], folder, NULL, 0);
    if (code != PLANISH_CODE_DONE) {
        return failed(code, "compile the model");
    }
    planish_model *model;
    code = planish_open(folder, 0, &model);
    if (code != PLANISH_CODE_DONE) {
        return failed(code, "open the artifact");
    }
    for (size_t index = 0; index < planish_input_count(model); index++) {
        print_port("input", planish_input(model, index));
    }
    for (size_t index = 0; index < planish_output_count(model); index++) {
        print_port("output", planish_output(model, index));
    }

    const size_t shape[] = {1, (size_t)count - 3};
    int64_t *ids = malloc(shape[1] * sizeof *ids);
    if (ids == NULL) {
        planish_close(model);
        return PLANISH_CODE_FAILED;
    }
    for (size_t index = 0; index < shape[1]; index++) {
        ids[index] = strtoll(words[3 + index], NULL, 10);
    }
    const planish_tensor input = {
        .name = "input_ids", .dtype = PLANISH_DTYPE_I64, .rank = 2, .shape = shape, .data = ids, .bytes = shape[1] * sizeof *ids,
    };
    planish_results *results;
    code = planish_run(model, &input, 1, &results);
    if (code == PLANISH_CODE_DONE) {
        for (size_t index = 0; index < planish_result_count(results); index++) {
            print_tensor(planish_result(results, index));
        }
        planish_free_results(results);
    } else {
        failed(code, "run the model");
    }
    free(ids);
    planish_close(model);
    return code;
}
