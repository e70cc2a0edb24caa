/* The topology as SVG. */
#include "base/error.h"
#include "topology/print.h"
rota_status topo_draw_svg(const struct topo_view *view, FILE *out) {
    (void)view;
    (void)out;
    return error_raise(ROTA_ERR_UNSUPPORTED, "not yet");
}
