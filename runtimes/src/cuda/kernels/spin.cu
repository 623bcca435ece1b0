// Keeps the GPU busy, so that the host can give work after an event before the event is reached.

KERNEL spin(unsigned long long nanoseconds) {
#ifndef PLANISH_HOST
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
#else
    (void)nanoseconds;
#endif
}
EXPORT(spin)
