// llama-server's main, from a list of arguments.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace parkade {

// Called on the main thread when llama-server has accepted its own flags: nothing need be touched
// before. A status that is not OK ends the process: one line on stderr, exit 2.
struct ServerCallbacks {
  // It only starts other servers and loads nothing itself. Before it listens.
  std::function<absl::Status()> on_router;
  // It is about to load a model whose file is there. It listens, and refuses requests. Once.
  std::function<absl::Status(const std::string& model_path)> before_load;
};

// Runs until the server stops; returns its exit status. arguments[0] is the program's name.
// Upstream's prompt cache is switched off and its metrics on.
int RunLlamaServer(std::vector<std::string> arguments, ServerCallbacks callbacks);

// From the hook that knows the mode.
void CallOnRouter();

// Version of the llama.cpp that is built in, for people.
std::string LlamaVersion();

}  // namespace parkade
