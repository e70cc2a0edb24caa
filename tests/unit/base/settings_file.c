/* Configuration files that are none, and files with every kind of broken line. */
#include "base/error.h"
#include "base/settings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void enter_folder(void) {
    strcpy(folder, "/tmp/rota-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chmod(folder, 0755), 0);
    cr_assert_eq(chdir(folder), 0);
    setenv("ROTA_CONF", "conf", 1);
}

static void leave_folder(void) {
    unlink("conf");
    rmdir("conf");
    cr_assert_eq(rmdir(folder), 0);
}

TestSuite(settings_file, .init = enter_folder, .fini = leave_folder, .timeout = 20);

static void write_conf(const void *bytes, size_t size) {
    FILE *file = fopen("conf", "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

static struct settings *accept(const char *text) {
    struct settings *settings = NULL;
    write_conf(text, strlen(text));
    cr_assert_eq(settings_load(&settings), ROTA_OK, "%s", error_record()->message);
    return settings;
}

static void refused(const char *part) {
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_ERR_SETTING);
    cr_assert_null(settings);
    cr_assert_not_null(strstr(error_record()->message, part), "no \"%s\" in: %s", part,
                       error_record()->message);
}

static void refuse(const char *text, const char *part) {
    write_conf(text, strlen(text));
    refused(part);
}

Test(settings_file, forms_of_good_lines) {
    struct settings *settings =
        accept("ROTA_TIMEOUT_MS=5\n\n   # comment = here\r\n\tROTA_ROOT =  [::1]:5 \r\n"
               "ROTA_ALGORITHM = \nROTA_HOST_ID = a=b#c\nROTA_LANES = 2");
    cr_assert_eq(settings_integer(settings, SETTING_TIMEOUT_MS), 5);
    cr_assert_str_eq(settings_origin(settings, SETTING_TIMEOUT_MS), "conf:1");
    cr_assert_str_eq(settings_text(settings, SETTING_ROOT), "[::1]:5");
    cr_assert_str_eq(settings_origin(settings, SETTING_ROOT), "conf:4");
    cr_assert(settings_is_default(settings, SETTING_ALGORITHM));
    cr_assert_str_eq(settings_text(settings, SETTING_HOST_ID), "a=b#c");
    cr_assert_eq(settings_integer(settings, SETTING_LANES), 2);
    settings_free(settings);
    settings_free(accept(""));
    settings_free(accept("\n\n\n"));
    settings_free(accept("# only a comment"));
}

Test(settings_file, environment_wins_but_hides_no_error) {
    setenv("ROTA_LANES", "7", 1);
    struct settings *settings = accept("ROTA_LANES = 2\n");
    cr_assert_eq(settings_integer(settings, SETTING_LANES), 7);
    cr_assert_str_eq(settings_origin(settings, SETTING_LANES), "environment");
    settings_free(settings);
    refuse("ROTA_LANES = many\n", "conf:1: ROTA_LANES: value \"many\" refused");
    setenv("ROTA_LANES", "", 1);
    settings = accept("ROTA_LANES = 2\n");
    cr_assert_eq(settings_integer(settings, SETTING_LANES), 2);
    settings_free(settings);
}

Test(settings_file, broken_lines_are_named) {
    refuse("\n\nROTA_TIMEOUT = 5\n", "conf:3: \"ROTA_TIMEOUT\" is no setting");
    refuse("rota_timeout_ms = 5\n", "is no setting");
    refuse("= 5\n", "conf:1: \"\" is no setting");
    refuse("ROTA_LANES\n", "conf:1: \"ROTA_LANES\" is not of the form NAME = VALUE");
    refuse("ROTA_LANES = 1\nROTA_LANES = 1\n", "conf:2: ROTA_LANES was already set in line 1");
    refuse("\xef\xbb\xbfROTA_LANES = 1\n", "\\xef\\xbb\\xbfROTA_LANES");
    refuse("\x1b[2J = 1\n", "\\x1b[2J");
    write_conf("ROTA_LANES = 1\nROTA_LANES\0 = 2\n", 32);
    refused("conf:2: a NUL byte in the line");
    write_conf("ROTA_LANES = 1\n\0", 16);
    refused("conf:2: a NUL byte");
}

Test(settings_file, C94_megabyte_without_newline) {
    size_t size = (size_t)1 << 20;
    char *bytes = malloc(size + 1);
    cr_assert_not_null(bytes);
    memset(bytes, 'A', size + 1);
    write_conf(bytes, size);
    refused("conf:1: \"AAAAAAAAAA");
    write_conf(bytes, size + 1);
    refused("larger than 1 MiB");
    bytes[1000] = '=';
    write_conf(bytes, size);
    refused("is no setting");
    memcpy(bytes, "ROTA_HOST_ID=", 13);
    write_conf(bytes, size);
    refused("conf:1: ROTA_HOST_ID: value \"AAAA");
    memset(bytes, '\n', size);
    write_conf(bytes, size);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    settings_free(settings);
    free(bytes);
}

Test(settings_file, C94_what_is_no_file) {
    refused("conf (ROTA_CONF): No such file or directory");
    cr_assert_eq(mkdir("conf", 0700), 0);
    refused("conf (ROTA_CONF): not a regular file");
    cr_assert_eq(rmdir("conf"), 0);
    cr_assert_eq(mkfifo("conf", 0600), 0);
    refused("not a regular file");
    unlink("conf");
    cr_assert_eq(symlink("conf", "conf"), 0);
    refused("symbolic links");
    setenv("ROTA_CONF", "/dev/zero", 1);
    refused("not a regular file");
    setenv("ROTA_CONF", "", 1);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    settings_free(settings);
}

Test(settings_file, C94_unreadable) {
    write_conf("", 0);
    cr_assert_eq(chmod("conf", 0), 0);
    bool root = geteuid() == 0;
    if (root)
        cr_assert_eq(seteuid(65534), 0);
    refused("Permission denied");
    if (root)
        cr_assert_eq(seteuid(0), 0);
}

Test(settings_file, long_paths_show_their_end) {
    char path[4000];
    memset(path, '/', sizeof(path));
    path[0] = '.';
    strcpy(path + sizeof(path) - 5, "conf");
    setenv("ROTA_CONF", path, 1);
    refuse("bad\n", "conf:1: \"bad\" is not");
    struct settings *settings = accept("ROTA_LANES = 3\n");
    const char *origin = settings_origin(settings, SETTING_LANES);
    cr_assert_eq(strlen(origin), strlen(path) + 2);
    cr_assert_str_eq(origin + strlen(path), ":1");
    settings_free(settings);
}
