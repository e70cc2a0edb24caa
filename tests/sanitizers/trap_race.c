/* Two threads write one variable without a lock, on purpose. */
#include <pthread.h>
#include <stddef.h>

static int shared;

static void *write_shared(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        shared++;
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, write_shared, NULL) != 0)
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
