#include "src/engine/llama/run_server.h"

int llama_server(int argc, char** argv);

namespace parkade {

int RunLlamaServer(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--cache-ram", "0", "--no-cache-idle-slots", "--metrics"});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return llama_server(static_cast<int>(arguments.size()), pointers.data());
}

std::string LlamaVersion() { return PARKADE_LLAMA_NAME; }

}  // namespace parkade
