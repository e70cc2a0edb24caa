/* A libnvidia-ml.so.1 for tests: it tells of the GPUs that the test writes down. */
#ifndef TESTS_TOPOLOGY_NVML_FAKE_H
#define TESTS_TOPOLOGY_NVML_FAKE_H

#define FAKE_GPUS 16
#define FAKE_LINKS 18

struct fake_link {
    int state;          /* 1 active */
    const char *remote; /* bus id as NVML writes it, "00000000:07:00.0" */
    unsigned kind;      /* 0 GPU, 2 NVSwitch */
    int error;          /* what calls about it return */
};

struct fake_gpu {
    const char *bus_id;
    int major, minor;
    int error; /* what calls about its PCI place return */
    struct fake_link links[FAKE_LINKS];
};

struct fake_nvml {
    int gpu_count, init_error;
    struct fake_gpu gpus[FAKE_GPUS];
    int inits, shutdowns; /* calls */
};

#endif
