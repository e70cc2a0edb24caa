/* Topology files made up by the tests. All return malloc'ed text. */
#ifndef TESTS_TOPOLOGY_MACHINES_H
#define TESTS_TOPOLOGY_MACHINES_H

/* hwloc XML of 4 packages with gpus / 4 GPUs and gpus / 8 NICs each, two GPUs and a NIC per PCI
 * switch. Packages are numbered backwards. */
char *machine_large(int gpus);
/* hwloc XML of 4 NUMA nodes, of which the second has no memory and the third no CPUs, with 4 GPUs.
 */
char *machine_poor(void);
/* The whole file; fails the test when it cannot be read. */
char *machine_file(const char *name);

#endif
