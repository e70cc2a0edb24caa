/* What NVIDIA's management library says of this machine, by a library of our own in its place and a
 * machine that hwloc reads from a file. The library is loaded here first: the loader then takes it
 * for every library of that name. */
#include "machines.h"
#include "nvml_fake.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPUS = 8 };

static struct fake_nvml *fake;
static char bus_ids[GPUS][48]; /* as NVML writes them */

static rota_topo *load(void) {
    rota_topo *topo = NULL;
    rota_error error = ROTA_ERROR_INIT;
    rota_status status = rota_topo_load(NULL, &topo);
    rota_last_error(&error);
    cr_assert_eq(status, ROTA_OK, "%s", error.message);
    return topo;
}

static rota_topo_info describe(const rota_topo *topo) {
    rota_topo_info info = ROTA_TOPO_INFO_INIT;
    cr_assert_eq(rota_topo_describe(topo, &info), ROTA_OK);
    return info;
}

/* This machine is `text` from now on, and `library` is its driver's. */
static void become(const char *library, char *text) {
    char path[] = "/tmp/rota-nvml-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    free(text);
    cr_assert_eq(setenv("HWLOC_XMLFILE", path, 1), 0);
    void *handle = dlopen(library, RTLD_NOW);
    cr_assert_not_null(handle, "%s", dlerror());
    fake = dlsym(handle, "fake_nvml");
    cr_assert_not_null(fake);
    rota_topo *topo = load();
    cr_assert_eq(describe(topo).link_gbps, 0); /* nothing of links yet */
    for (int i = 0; i < GPUS && i < describe(topo).gpus; i++) {
        rota_topo_gpu gpu = ROTA_TOPO_GPU_INIT;
        cr_assert_eq(rota_topo_gpu_describe(topo, i, &gpu), ROTA_OK);
        snprintf(bus_ids[i], sizeof(bus_ids[i]), "0000%s", gpu.bus_id);
        fake->gpus[i] = (struct fake_gpu){.bus_id = bus_ids[i], .major = 9};
    }
    fake->gpu_count = GPUS;
    rota_topo_free(topo);
}

static void forget(void) {
    unlink(getenv("HWLOC_XMLFILE"));
    cr_assert_eq(fake->inits, fake->shutdowns);
}

/* A pair of links i <-> j, on the first places that are free. */
static void join(int i, int j) {
    for (int side = 0; side < 2; side++) {
        struct fake_gpu *gpu = &fake->gpus[side == 0 ? i : j];
        int place = 0;
        while (gpu->links[place].state == 1)
            place++;
        gpu->links[place] = (struct fake_link){.state = 1, .remote = bus_ids[side == 0 ? j : i]};
    }
}

Test(nvml, direct_links_and_models) {
    become(NVML_FAKE, machine_large(GPUS));
    for (int i = 0; i < GPUS; i++) {
        join(i, (i + 1) % GPUS);
        join(i, (i + 1) % GPUS);
    }
    fake->gpus[5].links[9] = (struct fake_link){.state = 0, .remote = bus_ids[0]}; /* inactive */
    fake->gpus[5].links[10] = (struct fake_link){.state = 1, .remote = "00000000:FE:00.0"};
    fake->gpus[5].links[11] = (struct fake_link){.state = 1, .remote = bus_ids[0], .error = 15};
    fake->gpus[GPUS] = (struct fake_gpu){.bus_id = "00000000:FD:00.0", .major = 9}; /* not ours */
    fake->gpu_count = GPUS + 1;
    rota_topo *topo = load();
    cr_assert_str_eq(describe(topo).link_name, "NVLink4");
    for (int i = 0; i < GPUS; i++) {
        rota_topo_gpu gpu = ROTA_TOPO_GPU_INIT;
        cr_assert_eq(rota_topo_gpu_describe(topo, i, &gpu), ROTA_OK);
        cr_assert_eq(gpu.arch, 90);
        cr_assert_eq(gpu.switch_links, 0);
        for (int j = 0; j < GPUS; j++) {
            bool next = j == (i + 1) % GPUS || i == (j + 1) % GPUS;
            cr_assert_eq(rota_topo_links(topo, i, j), next ? 2 : 0, "%d to %d", i, j);
        }
    }
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    cr_assert_float_eq(result.score, 4, 1e-9);
    rota_topo_free(topo);
    forget();
}

/* Containers show GPUs and not the switches that they hang on. */
Test(nvml, switches_that_are_not_seen) {
    become(NVML_FAKE, machine_large(GPUS));
    for (int i = 0; i < GPUS; i++)
        for (int link = 0; link < FAKE_LINKS; link++)
            fake->gpus[i].links[link] = (struct fake_link){
                .state = i != 3 || link < 12, .remote = "00000000:CC:00.0", .kind = 2};
    rota_topo *topo = load();
    cr_assert_eq(describe(topo).nvswitches, 1);
    for (int i = 0; i < GPUS; i++) {
        rota_topo_gpu gpu = ROTA_TOPO_GPU_INIT;
        cr_assert_eq(rota_topo_gpu_describe(topo, i, &gpu), ROTA_OK);
        cr_assert_eq(gpu.switch_links, i == 3 ? 12 : 18);
    }
    cr_assert_eq(rota_topo_gpu_path(topo, 0, GPUS - 1), ROTA_PATH_LNK);
    rota_topo_free(topo);
    forget();
}

Test(nvml, old_drivers_do_not_tell_of_switches) {
    become(NVML_FAKE_OLD, machine_large(GPUS));
    join(0, 1);
    fake->gpus[2].links[0] =
        (struct fake_link){.state = 1, .remote = "00000000:CC:00.0", .kind = 2};
    rota_topo *topo = load();
    cr_assert_eq(rota_topo_links(topo, 0, 1), 1);
    cr_assert_eq(rota_topo_links(topo, 1, 0), 1);
    cr_assert_eq(describe(topo).nvswitches, 0);
    rota_topo_free(topo);
    forget();
}

Test(nvml, calls_that_fail) {
    become(NVML_FAKE, machine_large(GPUS));
    join(0, 1);
    join(1, 2);
    fake->gpus[0].error = 15; /* fallen off the bus */
    fake->gpus[2].major = 0;
    rota_topo *topo = load();
    cr_assert_eq(rota_topo_links(topo, 0, 1), 0);
    cr_assert_eq(rota_topo_links(topo, 1, 0), 1); /* one way: named as doubtful */
    cr_assert_eq(rota_topo_links(topo, 2, 1), 1);
    cr_assert_gt(describe(topo).warnings, 0);
    rota_topo_free(topo);
    fake->init_error = 9; /* no driver */
    topo = load();
    cr_assert_eq(describe(topo).link_gbps, 0);
    cr_assert_eq(describe(topo).gpus, GPUS);
    rota_topo_free(topo);
    forget();
}

Test(nvml, libraries_without_a_call) {
    become(NVML_FAKE_BROKEN, machine_large(GPUS));
    join(0, 1);
    rota_topo *topo = load();
    cr_assert_eq(rota_topo_links(topo, 0, 1), 0);
    cr_assert_eq(fake->inits, 0);
    rota_topo_free(topo);
    forget();
}

/* The merge of a file with this machine takes links from NVML too. */
Test(nvml, files_are_filled_in) {
    become(NVML_FAKE, machine_large(GPUS));
    for (int i = 0; i < GPUS; i++)
        join(i, (i + 1) % GPUS);
    rota_topo *topo = NULL;
    cr_assert_eq(rota_topo_load_merged(getenv("HWLOC_XMLFILE"), &topo), ROTA_OK);
    cr_assert_eq(rota_topo_links(topo, 0, 1), 1);
    cr_assert_eq(rota_topo_links(topo, 0, 2), 0);
    rota_topo_free(topo);
    forget();
}
