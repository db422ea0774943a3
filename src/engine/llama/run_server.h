// llama-server's main, from a list of arguments.
#pragma once

#include <string>
#include <vector>

namespace parkade {

// Runs until the server stops; returns its exit status. arguments[0] is the program's name.
// Upstream's prompt cache is switched off and its metrics on.
int RunLlamaServer(std::vector<std::string> arguments);

// Version of the llama.cpp that is built in, for people.
std::string LlamaVersion();

}  // namespace parkade
