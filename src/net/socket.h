/* Sockets as this layer makes and uses them: non-blocking, closed on exec, silent on SIGPIPE. */
#ifndef NET_SOCKET_H
#define NET_SOCKET_H

#include "net/handshake.h"

/* A socket address of either kind. */
struct net_endpoint {
    struct sockaddr_storage storage;
    socklen_t length;
};
void net_endpoint_inet(struct net_endpoint *endpoint, const struct net_address *address);
/* Abstract Unix name without the leading NUL. False when it is empty or too long. */
bool net_endpoint_local(struct net_endpoint *endpoint, const char *name);
/* "10.0.0.1:5000" or "@rota-01ab". */
void net_endpoint_text(const struct net_endpoint *endpoint, char text[NET_ADDRESS_TEXT]);

/* A stream socket with the options that all of ours have. -1 and errno on failure.
 * It does not pace what it sends, whatever the system's congestion control: inside a host that only
 * waits, and from a connection that has begun to pace it cannot be taken again. */
int net_socket_open(int family);
/* Before connect: both directions use segments that pass where larger ones get lost (a path of
 * small MTU whose routers do not say so). For connections of few bytes on which everything depends.
 */
void net_socket_small_segments(int socket);

enum net_io { NET_IO_DONE, NET_IO_AGAIN, NET_IO_CLOSED, NET_IO_FAILED /* errno */ };
/* Reads on towards `wanted` bytes; *filled counts. */
enum net_io net_socket_read(int socket, void *buffer, size_t wanted, size_t *filled);
/* Sends a handshake message whole: it is far smaller than the socket's empty buffer, so a partial
 * write is a failure. */
bool net_socket_send(int socket, const void *data, size_t bytes);
/* One byte that counts the descriptors, which go along (Unix sockets). */
bool net_socket_send_descriptors(int socket, const int *descriptors, int ndescriptors);
/* Takes such a message; on anything but NET_IO_DONE nothing stays open. NET_IO_FAILED with errno
 * EMFILE when the process ran out of descriptors, EPROTO when count and descriptors disagree. */
enum net_io net_socket_take_descriptors(int socket, int descriptors[NET_MAX_DESCRIPTORS],
                                        int *ndescriptors);
void net_close_all(const int *descriptors, int ndescriptors);

#endif
