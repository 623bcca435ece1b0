/* Calls planish in ways that it refuses, on the artifact of a text encoder, and prints each code and message as a line. */
#include <stdint.h>
#include <stdio.h>

#include "planish.h"

static void said(const char *name, planish_code code) {
    printf("%s: %d: %s\n", name, (int)code, planish_error());
}

static planish_code run(const planish_model *model, planish_tensor input) {
    planish_results *results = (planish_results *)1;
    planish_code code = planish_run(model, &input, 1, &results);
    if (results != NULL) {
        printf("results of a refused run\n");
    }
    return code;
}

static void compile_and_open(const char *artifact, const char *elsewhere, const char *source) {
    planish_model *model = (planish_model *)1;
    said("open nowhere", planish_open(elsewhere, 0, &model));
    printf("model of nowhere: %s\n", model == NULL ? "NULL" : "something");
    said("open NULL", planish_open(NULL, 0, &model));
    said("open into NULL", planish_open(artifact, 0, NULL));
    said("open empty", planish_open("", 0, &model));
    said("compile NULL", planish_compile(NULL, elsewhere, NULL, 0));
    said("compile into NULL", planish_compile(source, NULL, NULL, 0));
    said("compile nothing", planish_compile(elsewhere, artifact, NULL, 0));
    said("compile with NULL", planish_compile(source, elsewhere, NULL, 1));
    const char *words[] = {"precision=int5", "target=moon", NULL, "target=trt", "\xff"};
    said("precision", planish_compile(source, elsewhere, &words[0], 1));
    said("target", planish_compile(source, elsewhere, &words[1], 1));
    said("word", planish_compile(source, elsewhere, &words[2], 1));
    said("engines", planish_compile(source, elsewhere, &words[3], 1));
    said("not UTF-8", planish_compile(source, elsewhere, &words[4], 1));
    said("verify nowhere", planish_verify(elsewhere));
    said("verify NULL", planish_verify(NULL));
}

int main(int count, char **words) {
    if (count != 4) {
        return 1;
    }
    const char *artifact = words[1];
    compile_and_open(artifact, words[2], words[3]);

    planish_model *model;
    planish_code code = planish_open(artifact, 1, &model);
    said("open", code);
    if (code != PLANISH_CODE_DONE) {
        return 1;
    }
    const int64_t ids[] = {2, 3, 4};
    const size_t shape[] = {1, 3}, flat[] = {3};
    const planish_tensor input = {"input_ids", PLANISH_DTYPE_I64, 2, shape, ids, sizeof ids};
    planish_tensor changed = input;
    said("run NULL", run(NULL, input));
    said("run into NULL", planish_run(model, &input, 1, NULL));
    planish_results *results;
    said("inputs NULL", planish_run(model, NULL, 1, &results));
    said("no input", planish_run(model, NULL, 0, &results));
    const planish_tensor twice[] = {input, input};
    said("twice", planish_run(model, twice, 2, &results));
    changed.name = "words";
    said("name", run(model, changed));
    changed.name = NULL;
    said("name NULL", run(model, changed));
    changed = input, changed.dtype = PLANISH_DTYPE_F64;
    said("dtype", run(model, changed));
    changed.dtype = PLANISH_DTYPE_OTHER;
    said("dtype unknown", run(model, changed));
    changed = input, changed.rank = 1, changed.shape = flat;
    said("rank", run(model, changed));
    changed.shape = NULL;
    said("shape NULL", run(model, changed));
    changed = input, changed.bytes = 16;
    said("bytes", run(model, changed));
    changed = input, changed.data = NULL;
    said("data NULL", run(model, changed));
    const int64_t far[] = {2, 3, 1000000};
    changed = input, changed.data = far;
    said("id", run(model, changed));

    printf("beyond: %d %d\n", planish_input(model, 1000) == NULL, planish_output(model, SIZE_MAX) == NULL);
    code = planish_run(model, &input, 1, &results);
    said("run", code);
    printf("results: %zu of %zu outputs\n", planish_result_count(results), planish_output_count(model));
    const planish_tensor *first = planish_result(results, 0);
    planish_close(model);
    printf("named: %d %d\n", planish_result_named(results, first->name) == first, planish_result_named(results, "x") == NULL);
    printf("result beyond: %d\n", planish_result(results, planish_result_count(results)) == NULL);
    planish_free_results(results);

    planish_close(NULL);
    planish_free_results(NULL);
    printf("of NULL: %zu %zu %zu %d %d %d\n", planish_input_count(NULL), planish_output_count(NULL), planish_result_count(NULL),
           planish_input(NULL, 0) == NULL, planish_output(NULL, 0) == NULL, planish_result(NULL, 0) == NULL);
    return 0;
}
