// gemmctl: the command line of gemmd.

#include "client/cli/commands.h"
#include "client/cli/run_main.h"

// One caller at a time: few of gRPC's threads stay warm (server/grpc_threads/grpc_threads.h).
extern "C" {
int gemmd_default_grpc_threads = 2;
}

int main(int argc, char** argv) { return gemmd::cli::RunMain(gemmd::cli::Commands(), argc, argv); }
