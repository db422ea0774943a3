#include "tests/bench/arguments.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

absl::Status Take(const std::string& option, const std::string& value, Arguments* arguments) {
  if (option == "--dir") {
    arguments->directory = value;
  } else if (option == "--json") {
    arguments->json = value;
  } else if (option != "--scale") {
    return absl::InvalidArgumentError(absl::StrCat("unknown option ", option));
  } else if (!absl::SimpleAtod(value, &arguments->scale) || !(arguments->scale > 0) ||
             arguments->scale > 1) {
    return absl::InvalidArgumentError("--scale takes a number above 0, at most 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words) {
  Arguments arguments;
  if (words.size() == 1 && words[0] == "list") {
    arguments.list = true;
    return arguments;
  }
  if (words.empty() || words[0] != "run") {
    return absl::InvalidArgumentError("say list, or run and which workloads");
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].rfind("--", 0) == 0) {
      if (i + 1 == words.size()) {
        return absl::InvalidArgumentError(absl::StrCat(words[i], " needs a value"));
      }
      if (absl::Status s = Take(words[i], words[i + 1], &arguments); !s.ok()) return s;
      ++i;
    } else if (FindWorkload(words[i]) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("no workload is called ", words[i], "; see parkade-bench list"));
    } else {
      arguments.names.push_back(words[i]);
    }
  }
  if (arguments.names.empty()) return absl::InvalidArgumentError("name at least one workload");
  return arguments;
}

}  // namespace parkade::bench
