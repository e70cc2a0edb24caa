/* expat as the readers use it. */
#include "topology/xml.h"
#include "base/error.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void topo_xml_refuse(struct topo_xml *xml, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (xml->reason[0] == '\0')
        vsnprintf(xml->reason, sizeof(xml->reason), format, arguments);
    va_end(arguments);
    XML_StopParser(xml->parser, XML_FALSE);
}

const char *topo_xml_attribute(const char **attributes, const char *name) {
    for (; attributes[0] != NULL; attributes += 2)
        if (strcmp(attributes[0], name) == 0)
            return attributes[1];
    return NULL;
}

/* Entities have no place in these files and are a known way to make parsers explode. */
static void on_entity(void *xml, const char *name, int is_parameter, const char *value,
                      int value_length, const char *base, const char *system_id,
                      const char *public_id, const char *notation) {
    (void)is_parameter, (void)value, (void)value_length, (void)base, (void)system_id;
    (void)public_id, (void)notation;
    topo_xml_refuse(xml, "it declares the entity %.40s", name);
}

rota_status topo_xml_parse(struct topo_xml *xml, const char *source, const char *bytes,
                           size_t length, XML_StartElementHandler open, XML_EndElementHandler close,
                           XML_CharacterDataHandler text) {
    rota_status status = ROTA_OK;
    xml->parser = XML_ParserCreate(NULL);
    if (xml->parser == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for %.150s", source);
    XML_SetUserData(xml->parser, xml);
    XML_SetElementHandler(xml->parser, open, close);
    XML_SetCharacterDataHandler(xml->parser, text);
    XML_SetEntityDeclHandler(xml->parser, on_entity);
    bool parsed =
        length < INT_MAX && XML_Parse(xml->parser, bytes, (int)length, 1) == XML_STATUS_OK;
    if (xml->no_memory)
        status = error_raise(ROTA_ERR_MEMORY, "no memory for %.150s", source);
    else if (!parsed)
        status = error_raise(
            ROTA_ERR_FORMAT, "%.150s, line %lu: %s", source,
            (unsigned long)XML_GetCurrentLineNumber(xml->parser),
            xml->reason[0] != '\0' ? xml->reason : XML_ErrorString(XML_GetErrorCode(xml->parser)));
    XML_ParserFree(xml->parser);
    return status;
}
