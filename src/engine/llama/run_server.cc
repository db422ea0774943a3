#include "src/engine/llama/run_server.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "common.h"
#include "log.h"

int llama_server(int argc, char** argv);
struct server_context;

namespace parkade {
namespace {

// llama-server calls back without an argument of ours.
ServerCallbacks& Callbacks() {
  static ServerCallbacks callbacks;
  return callbacks;
}

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

void EndIfRefused(const absl::Status& status) {
  if (status.ok()) return;
  common_log_flush(common_log_main());
  fprintf(stderr, "error: %.*s\n", static_cast<int>(status.message().size()),
          status.message().data());
  fflush(nullptr);
  _exit(2);  // the HTTP server's threads run: nothing to unwind
}

void CallBeforeLoad(const std::string& model_path) {
  // What is not there fails to load, with llama-server's own words.
  if (!Callbacks().before_load || ::access(model_path.c_str(), R_OK) != 0) return;
  EndIfRefused(Callbacks().before_load(model_path));
}

}  // namespace

int RunLlamaServer(std::vector<std::string> arguments, ServerCallbacks callbacks) {
  Callbacks() = std::move(callbacks);
  TakeSignalsElsewhere();
  arguments.insert(arguments.end(), {"--cache-ram", "0"});
  // A router hands its own arguments down: twice, llama-server would complain.
  for (const char* flag : {"--no-cache-idle-slots", "--metrics"}) {
    if (std::find(arguments.begin(), arguments.end(), flag) == arguments.end()) {
      arguments.push_back(flag);
    }
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const int status = llama_server(static_cast<int>(arguments.size()), pointers.data());
  Callbacks() = {};
  return status;
}

void CallOnRouter() {
  if (Callbacks().on_router) EndIfRefused(Callbacks().on_router());
}

std::string LlamaVersion() { return PARKADE_LLAMA_NAME; }

}  // namespace parkade

// server_context::load_model: where the flags are accepted and the model's files are there. Waking
// from an idle sleep does not come by here.
extern "C" {
bool __real__ZN14server_context10load_modelER13common_params(server_context* self,
                                                             common_params& params);
bool __wrap__ZN14server_context10load_modelER13common_params(server_context* self,
                                                             common_params& params);

bool __wrap__ZN14server_context10load_modelER13common_params(server_context* self,
                                                             common_params& params) {
  parkade::CallBeforeLoad(params.model.path);
  return __real__ZN14server_context10load_modelER13common_params(self, params);
}
}
