/* NVIDIA's management library, as far as planish calls it: it knows the GPU of gpu.c, which is hot. */
#include <stdio.h>
#include <string.h>

int fake_throttle_reasons = 0x4 | 0x1; /* power cap, idle */
unsigned long long fake_millijoules = 5000;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) { (void)e; return "a fake error"; }
int nvmlSystemGetDriverVersion(char *to, unsigned n) { snprintf(to, n, "580.65.06"); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)uuid;
    return strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0eff") ? 6 : 0; /* NVML_ERROR_NOT_FOUND */
}
int nvmlDeviceGetName(void *d, char *to, unsigned n) { (void)d; snprintf(to, n, "A fake GPU 80GB"); return 0; }
int nvmlDeviceGetClockInfo(void *d, int clock, unsigned *mhz) { (void)d; *mhz = clock == 1 ? 1410 : 2619; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, int clock, unsigned *mhz) { (void)d; *mhz = clock == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *mw) { (void)d; (void)mw; return 3; } /* NVML_ERROR_NOT_SUPPORTED */
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { (void)d; *mw = 512500; return 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c) { (void)d; (void)sensor; *c = 71; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { (void)d; *r = fake_throttle_reasons; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj) { (void)d; *mj = fake_millijoules; return 0; }
