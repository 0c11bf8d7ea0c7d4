/* MariaDB Connector/C: failover HOST:PORT,HOST:PORT PASSWORD MILLISECONDS
 * cc failover.c -o failover $(mariadb_config --cflags --libs) */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static long now(void) {
    struct timeval time;
    gettimeofday(&time, 0);
    return time.tv_sec * 1000 + time.tv_usec / 1000;
}

static void failed(MYSQL **connection, int *errors, char *first, size_t length) {
    if (!(*errors)++) snprintf(first, length, "%d %s", mysql_errno(*connection), mysql_error(*connection));
    mysql_close(*connection);
    *connection = 0;
}

int main(int count, char **arguments) {
    if (count != 4) return 1;
    long end = now() + atol(arguments[3]), last = 0, gap = 0;
    int errors = 0;
    char first[300] = "";
    unsigned seconds = 1;
    MYSQL *connection = 0;
    for (; now() < end; usleep(20000)) {
        if (!connection) {
            connection = mysql_init(0);
            mysql_options(connection, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
            if (!mysql_real_connect(connection, arguments[1], "app", arguments[2], "d", 0, 0, 0)) {
                failed(&connection, &errors, first, sizeof first);
                continue;
            }
        }
        if (mysql_query(connection, "INSERT INTO d.t (k) VALUES (1)")) {
            failed(&connection, &errors, first, sizeof first);
            continue;
        }
        long moment = now();
        if (last && moment - last > gap) gap = moment - last;
        last = moment;
    }
    /* Without a commit until the end, it has not come back. */
    if (end - last > 2000) printf("gap_ms=never errors=%d first=%s\n", errors, first);
    else printf("gap_ms=%ld errors=%d first=%s\n", gap, errors, first);
    return 0;
}
