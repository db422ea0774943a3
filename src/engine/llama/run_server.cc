#include "src/engine/llama/run_server.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

int llama_server(int argc, char** argv);

namespace parkade {
namespace {

// llama-server's signal handler takes a lock of its queue: on a thread that holds it already, the
// process would never end. So signals come to a thread that holds nothing.
void TakeSignalsElsewhere() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  // Threads that are started from now on inherit this.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    while (true) pause();
  }).detach();
}

}  // namespace

int RunLlamaServer(std::vector<std::string> arguments) {
  TakeSignalsElsewhere();
  arguments.insert(arguments.end(), {"--cache-ram", "0", "--no-cache-idle-slots", "--metrics"});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return llama_server(static_cast<int>(arguments.size()), pointers.data());
}

std::string LlamaVersion() { return PARKADE_LLAMA_NAME; }

}  // namespace parkade
