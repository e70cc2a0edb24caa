/* What the readers of XML share: expat without entities, and one way to refuse. */
#ifndef TOPOLOGY_XML_H
#define TOPOLOGY_XML_H

#include <expat.h>
#include <rota/status.h>
#include <stdbool.h>
#include <stddef.h>

/* A reader's own struct begins with it. */
struct topo_xml {
    XML_Parser parser;
    char reason[160]; /* of the refusal, "" none */
    bool no_memory;
};

/* Calls the handlers (text may be NULL) with `xml`. Errors: ROTA_ERR_FORMAT naming source and line,
 * ROTA_ERR_MEMORY. */
rota_status topo_xml_parse(struct topo_xml *xml, const char *source, const char *bytes,
                           size_t length, XML_StartElementHandler open, XML_EndElementHandler close,
                           XML_CharacterDataHandler text);
/* Ends the parsing; the first reason counts. */
void topo_xml_refuse(struct topo_xml *xml, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* NULL where there is none. */
const char *topo_xml_attribute(const char **attributes, const char *name);

#endif
