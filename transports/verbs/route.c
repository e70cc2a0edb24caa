/* Which rail leads to a peer's address, and what packets hold on the way. See devices.h. */
#include "devices.h"

#include <infiniband/sa.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What RoCE adds to a packet's payload at most: GRH or IP 40, UDP 8, base header 12, extended 32,
 * check 4 (the kernel's iboe_get_mtu counts the same). */
#define ROCE_OVERHEAD 96
/* The discard service: a port to ask the way to, since 0 would not do. Nothing is sent. */
#define ANY_PORT 9

void verbs_address(const uint8_t ip[16], uint32_t interface, uint16_t port,
                   struct sockaddr_storage *address) {
    struct in6_addr six;
    memcpy(&six, ip, sizeof(six));
    memset(address, 0, sizeof(*address));
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
        struct sockaddr_in *in = (void *)address;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, ip + 12, 4);
    } else {
        struct sockaddr_in6 *in6 = (void *)address;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        in6->sin6_addr = six;
        in6->sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&six) ? interface : 0;
    }
}

static socklen_t length_of(const struct sockaddr_storage *address) {
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* Asks the kernel for the route to a peer's address from one of ours, or from any (NULL), by a
 * datagram socket that is connected and sends nothing. Returns the bytes that an IP packet may
 * have on it, 0 when there is no route; `source` gets the address that it begins at. */
static uint32_t ask_route(const struct verbs_rail *from, const uint8_t ip[16],
                          struct sockaddr_storage *source) {
    struct sockaddr_storage remote;
    verbs_address(ip, from != NULL ? from->interface : 0, ANY_PORT, &remote);
    int fd = socket(remote.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
    bool found = fd >= 0;
    if (found && from != NULL)
        found = from->address.ss_family == remote.ss_family &&
                bind(fd, (const struct sockaddr *)&from->address, length_of(&remote)) == 0;
    socklen_t size = sizeof(*source), mtu_size = sizeof(mtu);
    int level = remote.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    found = found && connect(fd, (struct sockaddr *)&remote, length_of(&remote)) == 0 &&
            getsockname(fd, (struct sockaddr *)source, &size) == 0 &&
            getsockopt(fd, level, level == IPPROTO_IP ? IP_MTU : IPV6_MTU, &mtu, &mtu_size) == 0;
    if (fd >= 0)
        close(fd);
    return found && mtu > 0 ? (uint32_t)mtu : 0;
}

static bool begins_at(const struct sockaddr_storage *source, const struct verbs_rail *rail) {
    struct sockaddr_storage own;
    verbs_address(rail->ip, rail->interface, 0, &own);
    if (own.ss_family != source->ss_family)
        return false;
    if (source->ss_family == AF_INET)
        return ((const struct sockaddr_in *)&own)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)source)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)&own)->sin6_addr,
                  &((const struct sockaddr_in6 *)source)->sin6_addr, 16) == 0;
}

static int find_route(const struct verbs_rail *rails, int count, const uint8_t ip[16],
                      uint32_t *ip_mtu) {
    struct sockaddr_storage source;
    *ip_mtu = ask_route(NULL, ip, &source);
    for (int i = 0; i<count && * ip_mtu> 0; i++)
        if (begins_at(&source, &rails[i]))
            return i;
    /* The kernel would begin elsewhere (rules by source address, several ways): the first of ours
     * from which there is a way. */
    for (int i = 0; i < count; i++)
        if ((*ip_mtu = ask_route(&rails[i], ip, &source)) > 0)
            return i;
    return -1;
}

int verbs_route(const struct verbs_rail *rails, int count, const uint8_t ip[16], uint32_t *mtu) {
    uint32_t ip_mtu = 0;
    int found = find_route(rails, count, ip, &ip_mtu);
    if (found < 0)
        return -1;
    const struct verbs_rail *rail = &rails[found];
    uint32_t most = rail->mtu;
    /* Elsewhere the link's own packets are not those of IP. */
    if (rail->ethernet && rail->immediate && ip_mtu < most + ROCE_OVERHEAD)
        most = ip_mtu > ROCE_OVERHEAD ? ip_mtu - ROCE_OVERHEAD : 0;
    uint32_t fits = 256;
    while (fits < 4096 && fits * 2 <= most)
        fits *= 2;
    *mtu = fits;
    return found;
}

int verbs_set_path(const struct verbs_calls *calls, struct rdma_cm_id *id, uint32_t mtu,
                   uint8_t ack_timeout) {
    enum { EXACTLY = 2 << 6, NUMPATHS = 1, REVERSIBLE = 1 << 7, HOPS = 64, ANY_RATE = 0 };
    const struct rdma_ib_addr *ends = &id->route.addr.addr.ibaddr;
    uint8_t code = IBV_MTU_256;
    while (code < IBV_MTU_4096 && 128u << code < mtu)
        code++;
    /* Hardware addresses and VLAN are the kernel's to find. */
    struct ibv_path_data data = {
        .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
        .path = {.dgid = ends->dgid,
                 .sgid = ends->sgid,
                 .flowlabel_hoplimit = htonl(HOPS),
                 .reversible_numpath = REVERSIBLE | NUMPATHS,
                 .pkey = htons(0xffff),
                 .mtu = (uint8_t)(EXACTLY | code),
                 .rate = EXACTLY | ANY_RATE,
                 .packetlifetime = (uint8_t)(EXACTLY | (ack_timeout > 0 ? ack_timeout - 1 : 18))}};
    return calls->set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof(data));
}
