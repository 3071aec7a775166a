/* A libnvidia-ml.so.1 that answers without a driver. Made by stub_driver.py, which sets:
   NVML_INIT                  what nvmlInit gives: 0, or NVML's number for what is wrong
   DRIVER                     the driver's version, such as "580.95.05"
   CUDA                       the newest CUDA of this driver: 1000 * major + 10 * minor
   CARDS, CARD                how many cards there are, and the name of each
   MAJOR, MINOR, MEMORY_MIB   compute capability and memory of each

   What is not here is a function that this driver does not have, as NVML's readers expect. */

#include <string.h>

#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define INSUFFICIENT_SIZE 7

struct memory { unsigned long long total, free, used; };

static int begun;
static char cards[CARDS ? CARDS : 1];

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    begun = NVML_INIT == SUCCESS;
    return NVML_INIT;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    return error == SUCCESS ? "Success" : error == 9 ? "Driver Not Loaded" : "An error of the stub";
}

static int text(const char *from, char *to, unsigned room) {
    if (!begun) return UNINITIALIZED;
    if (strlen(from) >= room) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

static int number(int from, int *to) {
    *to = from;
    return begun ? SUCCESS : UNINITIALIZED;
}

int nvmlSystemGetDriverVersion(char *to, unsigned room) { return text(DRIVER, to, room); }
int nvmlSystemGetCudaDriverVersion(int *to) { return number(CUDA, to); }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { return number(CUDA, to); }
int nvmlDeviceGetCount_v2(int *to) { return number(CARDS, to); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) {
    if (!begun) return UNINITIALIZED;
    if ((int)index >= CARDS) return INVALID_ARGUMENT;
    *card = cards + index;
    return SUCCESS;
}

int nvmlDeviceGetName(void *card, char *to, unsigned room) {
    (void)card;
    return text(CARD, to, room);
}

int nvmlDeviceGetUUID(void *card, char *to, unsigned room) {
    char uuid[] = "GPU-00000000-0000-0000-0000-000000000000";
    uuid[sizeof uuid - 2] = (char)('0' + (int)((char *)card - cards) % 10);
    return text(uuid, to, room);
}

int nvmlDeviceGetMemoryInfo(void *card, struct memory *to) {
    (void)card;
    to->total = to->free = (unsigned long long)MEMORY_MIB << 20;
    to->used = 0;
    return begun ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetCudaComputeCapability(void *card, int *major, int *minor) {
    (void)card;
    *major = MAJOR;
    return number(MINOR, minor);
}
