/* The benchmark behind `rota bench`. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

/* argv[0] is ignored. Returns 0, 1 when a result was wrong or a call failed, 2 for arguments. */
int bench_main(int argc, char **argv);
/* `rota bench --overheads`, which is the first argument: argv[0]. */
int bench_overheads(int argc, char **argv);
/* `rota bench --cores`, in the same way. */
int bench_cores(int argc, char **argv);
/* `rota bench --init`, likewise. */
int bench_startup(int argc, char **argv);

#endif
