/* Runs one model from several threads at the same time; each has inputs of its own, and errors of its own. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "planish.h"

enum { THREADS = 4, RUNS = 20 };

typedef struct {
    const planish_model *model;
    int64_t id;
    float first;
    int failures;
} work;

static void *run(void *argument) {
    work *own = argument;
    const size_t shape[] = {1, 1};
    const planish_tensor input = {"input_ids", PLANISH_DTYPE_I64, 2, shape, &own->id, sizeof own->id};
    for (int time = 0; time < RUNS; time++) {
        planish_results *results;
        if (planish_run(own->model, &input, 1, &results) != PLANISH_CODE_DONE) {
            own->failures++;
            continue;
        }
        const float *numbers = planish_result(results, 0)->data;
        if (time == 0) {
            own->first = numbers[0];
        }
        own->failures += numbers[0] != own->first || strcmp(planish_error(), "") != 0;
        planish_free_results(results);
        planish_model *none;
        own->failures += planish_open(NULL, 0, &none) != PLANISH_CODE_USAGE;
        own->failures += strcmp(planish_error(), "") == 0;
    }
    return NULL;
}

int main(int count, char **words) {
    planish_model *model;
    if (count != 2 || planish_open(words[1], 1, &model) != PLANISH_CODE_DONE) {
        fprintf(stderr, "%s\n", planish_error());
        return 1;
    }
    work all[THREADS] = {{0}};
    pthread_t threads[THREADS];
    for (int64_t index = 0; index < THREADS; index++) {
        all[index].model = model, all[index].id = 2 + index;
        if (pthread_create(&threads[index], NULL, run, &all[index]) != 0) {
            return 1;
        }
    }
    int failures = 0;
    for (int index = 0; index < THREADS; index++) {
        pthread_join(threads[index], NULL);
        failures += all[index].failures;
    }
    planish_close(model);
    printf("%d failures, results differ: %d\n", failures, all[0].first != all[1].first);
    return failures;
}
