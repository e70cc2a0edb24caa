/* rota_preflight: what a rank that begins here would meet. */
#include "api/preflight.h"

#include "base/error.h"
#include "base/log.h"
#include "transports/transport.h"
#include <stdarg.h>
#include <stdio.h>

void preflight_tell(const struct preflight *preflight, rota_finding_level level, const char *topic,
                    const char *advice, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    rota_finding finding = {
        .size = sizeof(finding), .level = level, .topic = topic, .text = text, .advice = advice};
    preflight->tell(&finding, preflight->arg);
}

/* Settings that are not as they come. */
static void look_at_settings(const struct preflight *preflight) {
    int set = 0;
    for (int i = 0; i < SETTING_COUNT; i++) {
        if (settings_is_default(preflight->settings, (enum setting_id)i))
            continue;
        set++;
        preflight_tell(preflight, ROTA_FINDING_NOTE, "setting", NULL, "%s=%.200s (from %.200s)",
                       settings_table()[i].name,
                       settings_shown(preflight->settings, (enum setting_id)i),
                       settings_origin(preflight->settings, (enum setting_id)i));
    }
    if (set == 0)
        preflight_tell(preflight, ROTA_FINDING_OK, "setting", NULL, "all as they come");
}

rota_status rota_transport_survey(int index, rota_finding_fn tell, void *arg) {
    const struct transport_ops *ops = transport_at(index);
    struct settings *settings = NULL;
    if (ops == NULL || tell == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "tell is NULL, or there is no transport %d", index);
    rota_status status = settings_load(&settings);
    if (status != ROTA_OK)
        return status;
    if (ops->survey != NULL)
        ops->survey(settings, tell, arg);
    settings_free(settings);
    error_clear();
    return ROTA_OK;
}

rota_status rota_preflight(rota_finding_fn tell, void *arg) {
    if (tell == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "tell is NULL");
    struct preflight preflight = {.tell = tell, .arg = arg};
    struct settings *settings = NULL;
    rota_status status = settings_load(&settings);
    if (status == ROTA_ERR_MEMORY)
        return status;
    if (status != ROTA_OK)
        preflight_tell(&preflight, ROTA_FINDING_PROBLEM, "setting",
                       "correct it: rota_init will refuse it too", "%s", error_record()->message);
    preflight.settings = settings;
    preflight_machine(&preflight);
    if (settings != NULL) {
        preflight_job(&preflight);
        for (int i = 0; transport_at(i) != NULL; i++)
            if (transport_at(i)->survey != NULL)
                transport_at(i)->survey(settings, tell, arg);
        look_at_settings(&preflight);
        settings_free(settings);
    }
    error_clear();
    return ROTA_OK;
}
