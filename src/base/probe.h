/* Static probes (USDT) of provider "rota": places where a tracer (bpftrace, perf, SystemTap) can
 * look without a special build. One that nobody watches is a no-op instruction; without sys/sdt.h
 * the macros are empty.
 *
 *   collective_begin(kind, sequence, bytes)     called or queued; bytes = count * element size
 *   collective_end(kind, sequence, status)
 *   message_sent(peer, bytes)                   handed to a transport; peer: rank in the job
 *   message_received(peer, bytes)               matched to its receive
 *   sleep()                                     a waiting thread is about to sleep */
#ifndef BASE_PROBE_H
#define BASE_PROBE_H

#ifdef ROTA_HAVE_SDT
#include <sys/sdt.h>
#define PROBE0(name) DTRACE_PROBE(rota, name)
#define PROBE2(name, a, b) DTRACE_PROBE2(rota, name, a, b)
#define PROBE3(name, a, b, c) DTRACE_PROBE3(rota, name, a, b, c)
#else
#define PROBE0(name) ((void)0)
#define PROBE2(name, a, b) ((void)(a), (void)(b))
#define PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
