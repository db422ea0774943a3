// Router mode: llama-server starts a server for every model, which is this program again, with the
// router's environment but without our flags. It reads them from a file that the router writes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/server/flags.h"

namespace parkade {

// Names the file that tells the servers of a router their options.
inline constexpr char kRouterOptionsVariable[] = "PARKADE_OPTIONS_FILE";

// ${XDG_CACHE_HOME:-~/.cache}/parkade: files of the user's that belong to no tier. Empty: there is
// no such place. Nothing is made.
std::string CacheFolder();
// Makes a folder and those above it that are missing, mode 0700. One that is there is left as it
// is.
absl::Status MakeFolder(const std::string& path);

// The router's side. Its file is gone when this is; after a kill -9 it stays.
class RouterOptions {
 public:
  // Chooses a name that nobody can guess, in `folder` or, where that is empty, in the folder for
  // temporary files, and puts it into the environment. Nothing is written, and no other thread may
  // run yet.
  explicit RouterOptions(const std::string& folder);
  ~RouterOptions();
  RouterOptions(const RouterOptions&) = delete;
  RouterOptions& operator=(const RouterOptions&) = delete;

  // Once. Makes the file, mode 0600, and the folder if it is missing.
  absl::Status Write(const ParsedFlags& flags);
  const std::string& path() const { return path_; }

 private:
  const std::string folder_;
  const std::string path_;
  bool written_ = false;
};

// InvalidArgument with one clear line: the directory holds something that is not a folder named by
// a digest, or is no directory of this user's. One that does not exist is fine. Nothing is touched.
absl::Status CheckRouterDirectory(const std::string& directory);

// Whether a router of ours has started this process.
bool StartedByRouter();
// The command line of a process that a router has started. Its options count only if their file is
// a plain one of this user's that nobody else may read or write; else the defaults count, and a
// notice says why. The file's name is taken out of the environment: what this process starts is not
// the router's. No other thread may run yet. Errors are those of the command line.
absl::StatusOr<ParsedFlags> ParseChildFlags(int argc, const char* const* argv);

}  // namespace parkade
