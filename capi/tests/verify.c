/* Compares an artifact with its source, and prints the code and the message. */
#include <stdio.h>

#include "planish.h"

int main(int count, char **words) {
    planish_code code = planish_verify(count == 2 ? words[1] : NULL);
    printf("%d: %s\n", (int)code, planish_error());
    return 0;
}
