/* Socket plumbing: addresses, options, whole-message I/O and descriptor passing. */
#include "net/socket.h"
#include "base/clock.h"
#include "base/error.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

/* Every kernel has it and lets everybody use it. */
#define UNPACED "reno"
/* What every path carries: the least MTU of IPv6 (RFC 8200) less its header and that of TCP. */
#define SMALL_SEGMENT (1280 - 40 - 20)

void net_endpoint_inet(struct net_endpoint *endpoint, const struct net_address *address) {
    net_address_to_socket(address, &endpoint->storage, &endpoint->length);
}

bool net_endpoint_local(struct net_endpoint *endpoint, const char *name) {
    struct sockaddr_un *local = (struct sockaddr_un *)&endpoint->storage;
    size_t length = strlen(name);
    if (length == 0 || length + 1 > sizeof local->sun_path)
        return false;
    memset(&endpoint->storage, 0, sizeof endpoint->storage);
    local->sun_family = AF_UNIX;
    memcpy(local->sun_path + 1, name, length);
    endpoint->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return true;
}

void net_endpoint_text(const struct net_endpoint *endpoint, char text[NET_ADDRESS_TEXT]) {
    if (endpoint->storage.ss_family == AF_UNIX) {
        const struct sockaddr_un *local = (const struct sockaddr_un *)&endpoint->storage;
        int length = (int)endpoint->length - (int)offsetof(struct sockaddr_un, sun_path) - 1;
        snprintf(text, NET_ADDRESS_TEXT, "@%.*s", length > 0 ? length : 0, local->sun_path + 1);
        return;
    }
    struct net_address address;
    net_address_from_socket((const struct sockaddr *)&endpoint->storage, &address);
    net_address_text(&address, text);
}

int net_socket_open(int family) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || family == AF_UNIX)
        return fd;
    int one = 1;
    /* REUSEADDR also on connecting sockets: else what they leave in TIME_WAIT keeps a listener
     * from binding its port. Failure of any option costs speed, not correctness. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, UNPACED, sizeof UNPACED - 1);
    return fd;
}

void net_far(int fd) {
    char name[16] = "";
    socklen_t length = sizeof name;
    int fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fresh >= 0 && getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    if (fresh >= 0)
        close(fresh);
}

void net_socket_small_segments(int socket) {
    int bytes = SMALL_SEGMENT;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &bytes, sizeof bytes);
}

enum net_io net_socket_read(int socket, void *buffer, size_t wanted, size_t *filled) {
    while (*filled < wanted) {
        ssize_t got = recv(socket, (char *)buffer + *filled, wanted - *filled, MSG_DONTWAIT);
        if (got > 0)
            *filled += (size_t)got;
        else if (got == 0)
            return NET_IO_CLOSED;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return NET_IO_AGAIN;
        else if (errno != EINTR)
            return NET_IO_FAILED;
    }
    return NET_IO_DONE;
}

bool net_socket_send(int socket, const void *data, size_t bytes) {
    ssize_t sent;
    do
        sent = send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0 && (size_t)sent < bytes)
        errno = ENOBUFS;
    return sent == (ssize_t)bytes;
}

union descriptor_control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(NET_MAX_DESCRIPTORS * sizeof(int))];
};

bool net_socket_send_descriptors(int socket, const int *descriptors, int ndescriptors) {
    union descriptor_control control;
    uint8_t count = (uint8_t)ndescriptors;
    struct iovec vector = {.iov_base = &count, .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (ndescriptors > 0) {
        size_t bytes = (size_t)ndescriptors * sizeof(int);
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(head), descriptors, bytes);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == 1;
}

/* Gathers the descriptors of a received message; those beyond `max` are closed. */
static int gather_descriptors(struct msghdr *message, int *descriptors, int max) {
    int n = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (n < max)
                descriptors[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

enum net_io net_socket_take_descriptors(int socket, int descriptors[NET_MAX_DESCRIPTORS],
                                        int *ndescriptors) {
    union descriptor_control control;
    uint8_t count = 0;
    struct iovec vector = {.iov_base = &count, .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return NET_IO_CLOSED;
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? NET_IO_AGAIN : NET_IO_FAILED;
    int n = gather_descriptors(&message, descriptors, NET_MAX_DESCRIPTORS);
    if ((message.msg_flags & MSG_CTRUNC) || n != count) {
        net_close_all(descriptors, n);
        /* The kernel hands over as many as fit the limit and says only that some are missing. */
        errno = n < count && count <= NET_MAX_DESCRIPTORS ? EMFILE : EPROTO;
        return NET_IO_FAILED;
    }
    *ndescriptors = n;
    return NET_IO_DONE;
}

void net_close_all(const int *descriptors, int ndescriptors) {
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
}

/* Waits until the socket is ready; ROTA_ERR_TIMEOUT at the deadline. */
static rota_status wait_ready(int socket, short events, int64_t deadline_ns) {
    for (;;) {
        struct pollfd one = {.fd = socket, .events = events};
        int ready = poll(&one, 1, clock_left_ms(deadline_ns));
        if (ready > 0)
            return ROTA_OK;
        if (ready < 0 && errno != EINTR)
            return error_raise_system(errno, "poll");
        if (clock_passed(deadline_ns))
            return error_raise(ROTA_ERR_TIMEOUT, "the peer did not %s in time",
                               events == POLLIN ? "send" : "read");
    }
}

rota_status net_write_all(int socket, const void *data, size_t bytes, int64_t deadline_ns) {
    for (size_t done = 0; done < bytes;) {
        ssize_t sent =
            send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            done += (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            rota_status status = wait_ready(socket, POLLOUT, deadline_ns);
            if (status != ROTA_OK)
                return status;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return error_raise(ROTA_ERR_PEER, "the peer closed the connection");
        } else if (errno != EINTR) {
            return error_raise_system(errno, "send");
        }
    }
    return ROTA_OK;
}

rota_status net_read_all(int socket, void *data, size_t bytes, int64_t deadline_ns) {
    size_t filled = 0;
    for (;;) {
        enum net_io result = net_socket_read(socket, data, bytes, &filled);
        if (result == NET_IO_DONE)
            return ROTA_OK;
        if (result == NET_IO_CLOSED || (result == NET_IO_FAILED && errno == ECONNRESET))
            return error_raise(ROTA_ERR_PEER, "the peer closed the connection");
        if (result == NET_IO_FAILED)
            return error_raise_system(errno, "recv");
        rota_status status = wait_ready(socket, POLLIN, deadline_ns);
        if (status != ROTA_OK)
            return status;
    }
}

void net_random(void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t got = getrandom((char *)bytes + done, count - done, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got < 0 && errno != EINTR)
            abort(); /* keys and nonces must not be guessable: there is no way to go on */
    }
}
