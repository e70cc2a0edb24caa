/* The subcommands of `rota`. Each takes argc and argv with its own name in argv[0] and returns the
 * exit status: 0, 1 when something was found wrong, 2 for wrong arguments. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

int command_run(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_topo(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_info(int argc, char **argv);

#endif
