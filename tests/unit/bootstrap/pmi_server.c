/* A PMI server for tests. It holds one value per key and knows no errors but a wrong version. */
#include "pmi_server.h"
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PAIRS 64

struct client {
    int fd, version;
    char in[8192];
    int filled;
    int script_at;
};
static struct client clients[PMI_MAX_RANKS];
static struct { char key[64], value[4096]; } pairs[MAX_PAIRS];
static int npairs, in_barrier;

static void answer(struct client *client, const char *format, ...) {
    char text[8192], framed[8300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int length = client->version == 2
                     ? snprintf(framed, sizeof framed, "%6zu%s", strlen(text), text)
                     : snprintf(framed, sizeof framed, "%s\n", text);
    /* In two pieces: readers must not count on whole messages. */
    (void)!send(client->fd, framed, (size_t)length / 2, MSG_NOSIGNAL);
    usleep(500);
    (void)!send(client->fd, framed + length / 2, (size_t)(length - length / 2), MSG_NOSIGNAL);
}

static void field(const char *message, const char *name, char *value, size_t size) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, "%s=", name);
    const char *at = strstr(message, pattern);
    size_t length = at != NULL ? strcspn(at + strlen(pattern), " ;\n") : 0;
    if (at != NULL && length < size)
        snprintf(value, size, "%.*s", (int)length, at + strlen(pattern));
    else
        value[0] = 0;
}

static void put(const char *message) {
    char key[64], value[4096];
    field(message, "key", key, sizeof key);
    field(message, "value", value, sizeof value);
    int i = 0;
    while (i < npairs && strcmp(pairs[i].key, key) != 0)
        i++;
    npairs += i == npairs && npairs < MAX_PAIRS - 1;
    strcpy(pairs[i].key, key);
    strcpy(pairs[i].value, value);
}

static const char *get(const char *message) {
    char key[64];
    field(message, "key", key, sizeof key);
    for (int i = 0; i < npairs; i++)
        if (strcmp(pairs[i].key, key) == 0)
            return pairs[i].value;
    return NULL;
}

static void barrier(const struct pmi_server *server) {
    if (++in_barrier < server->nranks)
        return;
    in_barrier = 0;
    for (int i = 0; i < server->nranks; i++)
        answer(&clients[i],
               clients[i].version == 2 ? "cmd=kvs-fence-response;rc=0;" : "cmd=barrier_out");
}

static void serve(const struct pmi_server *server, struct client *client, const char *message) {
    char command[32];
    const char *value;
    field(message, "cmd", command, sizeof command);
    if (server->script != NULL && server->script[client->script_at] != NULL) {
        const char *text = server->script[client->script_at++];
        if (text[0] == 0)
            shutdown(client->fd, SHUT_RDWR);
        else
            (void)!send(client->fd, text, strlen(text), MSG_NOSIGNAL);
    } else if (strcmp(command, "init") == 0) {
        bool right = strstr(message, server->version == 2 ? "pmi_version=2" : "pmi_version=1");
        answer(client, "cmd=response_to_init pmi_version=%d pmi_subversion=0 rc=%d",
               server->version, right ? 0 : -1);
        client->version = right ? server->version : 1;
    } else if (strcmp(command, "get_maxes") == 0) {
        answer(client, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=%d", server->value_size);
    } else if (strcmp(command, "get_my_kvsname") == 0) {
        answer(client, "cmd=my_kvsname kvsname=kvs_1");
    } else if (strcmp(command, "put") == 0) {
        put(message);
        answer(client, "cmd=put_result rc=0 msg=success");
    } else if (strcmp(command, "barrier_in") == 0 || strcmp(command, "kvs-fence") == 0) {
        barrier(server);
    } else if (strcmp(command, "get") == 0) {
        value = get(message);
        answer(client, value ? "cmd=get_result rc=0 value=%s" : "cmd=get_result rc=-1", value);
    } else if (strcmp(command, "fullinit") == 0) {
        answer(client, "cmd=fullinit-response;pmi-version=2;rank=%d;size=%d;appnum=0;rc=0;",
               (int)(client - clients), server->nranks);
    } else if (strcmp(command, "job-getid") == 0) {
        answer(client, "cmd=job-getid-response;jobid=job_1;rc=0;");
    } else if (strcmp(command, "kvs-put") == 0) {
        put(message);
        answer(client, "cmd=kvs-put-response;rc=0;");
    } else if (strcmp(command, "kvs-get") == 0) {
        value = get(message);
        answer(client,
               value ? "cmd=kvs-get-response;flag=TRUE;value=%s;rc=0;"
                     : "cmd=kvs-get-response;flag=FALSE;rc=0;",
               value);
    } else {
        answer(client, "cmd=unknown rc=-1");
    }
}

static void step(const struct pmi_server *server, struct client *client) {
    char message[8192];
    ssize_t got = recv(client->fd, client->in + client->filled,
                       sizeof client->in - 1 - (size_t)client->filled, MSG_DONTWAIT);
    if (got == 0)
        _exit(0);
    client->filled += got > 0 ? (int)got : 0;
    client->in[client->filled] = 0;
    if (server->script != NULL) { /* whatever the command was, and however framed */
        client->filled = 0;
        serve(server, client, client->in);
        return;
    }
    for (;;) {
        char *end = strchr(client->in, '\n');
        int start = client->version == 2 ? 6 : 0;
        int length = client->version == 2 ? (client->filled > 6 ? atoi(client->in) : 0)
                     : end != NULL        ? (int)(end - client->in) + 1
                                          : 0;
        if (length == 0 || client->filled < start + length)
            return;
        memcpy(message, client->in + start, (size_t)length);
        message[length] = 0;
        client->filled -= start + length;
        memmove(client->in, client->in + start + length, (size_t)client->filled + 1);
        serve(server, client, message);
    }
}

static void run(const struct pmi_server *server) {
    struct pollfd fds[PMI_MAX_RANKS];
    alarm(60);
    for (;;) {
        for (int i = 0; i < server->nranks; i++)
            fds[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)server->nranks, -1);
        for (int i = 0; i < server->nranks; i++)
            if (fds[i].revents != 0)
                step(server, &clients[i]);
    }
}

void pmi_server_start(struct pmi_server *server) {
    int pair[2];
    for (int i = 0; i < server->nranks; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        server->sockets[i] = pair[0];
        clients[i] = (struct client){.fd = pair[1], .version = 1};
    }
    server->pid = fork();
    cr_assert_geq(server->pid, 0);
    if (server->pid == 0)
        run(server);
    for (int i = 0; i < server->nranks; i++)
        close(clients[i].fd);
}

void pmi_server_stop(struct pmi_server *server) {
    int state;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, &state, 0);
    for (int i = 0; i < server->nranks; i++)
        close(server->sockets[i]);
}
