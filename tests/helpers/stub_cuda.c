/* A libcuda.so.1 that answers without a card. Made by stub_driver.py, which sets:
   CU_INIT      what cuInit gives: 0, or CUDA's number for what is wrong
   CU_VERSION   the newest CUDA of this driver: 1000 * major + 10 * minor
   CU_DEVICES   how many cards it has, once cuInit gave 0
   NEEDED(NAME) a list of the entry points that programs are linked with

   Everything that is not written out here gives "not supported", or what cuInit gave. */

#include <string.h>

#define SUCCESS 0
#define INVALID_VALUE 1
#define NOT_INITIALIZED 3
#define INVALID_DEVICE 101
#define NOT_FOUND 500
#define NOT_SUPPORTED 801

static int begun;

int cuInit(unsigned flags) {
    (void)flags;
    begun = CU_INIT == SUCCESS;
    return CU_INIT;
}

int cuDriverGetVersion(int *version) {
    *version = CU_VERSION;
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    if (!begun) return NOT_INITIALIZED;
    *count = CU_DEVICES;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    if (!begun) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= CU_DEVICES) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == 100 ? "no CUDA-capable device is detected" : "an error of the stub driver";
    return SUCCESS;
}

int cuGetErrorName(int error, const char **text) {
    *text = error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_THE_STUB";
    return SUCCESS;
}

int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = 0;
    return NOT_FOUND;
}

static int other(void) {
    return begun ? NOT_SUPPORTED : NOT_INITIALIZED;
}

#define NAME(name) int name(void) { return other(); }
NEEDED(NAME)
#undef NAME

static const struct {
    const char *name;
    void *entry;
} known[] = {
#define KNOWN(name) {#name, (void *)name},
    KNOWN(cuInit) KNOWN(cuDriverGetVersion) KNOWN(cuDeviceGetCount) KNOWN(cuDeviceGet)
    KNOWN(cuGetErrorString) KNOWN(cuGetErrorName) KNOWN(cuGetExportTable)
};

/* How CUDA's runtime asks for all others; a real driver knows many hundred. */
int cuGetProcAddress_v2(
    const char *name, void **entry, int version, unsigned long long flags, int *status
) {
    (void)flags;
    if (!name || !entry) return INVALID_VALUE;
    if (status) *status = SUCCESS;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) {
            *entry = known[i].entry;
            return SUCCESS;
        }
    if (!strcmp(name, "cuGetProcAddress")) *entry = (void *)cuGetProcAddress_v2;
    else if (version <= CU_VERSION) *entry = (void *)other;
    else {
        *entry = 0;
        if (status) *status = 2; /* this driver is too old for it */
        return NOT_FOUND;
    }
    return SUCCESS;
}

int cuGetProcAddress(const char *name, void **entry, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, entry, version, flags, 0);
}
