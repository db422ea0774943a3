// Content digest of a model's weights, remembered between starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/identity.h"

namespace parkade {

struct WeightsDigestOptions {
  std::string model_path;  // any shard of a split model stands for all of them
  std::string memo_path;   // JSON file, made with mode 0600; empty: nothing is remembered
  // Called after every few MiB, on the calling thread. Remembered files count as done at once.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
  const std::atomic<bool>* cancel = nullptr;  // checked as often
  std::function<std::int64_t()> now_unix_ns;  // required with a memo
};

struct WeightsDigest {
  // Of a file: XXH3-128 over the XXH3-128s of its blocks of 4 MiB (so that it can be told how far
  // it is, and stopped). Of several shards: over theirs, in order.
  Digest128 digest;
  std::uint64_t read_bytes = 0;  // 0: all of it was remembered
  absl::Status memo;             // why it could not be remembered; the digest stands anyway
};

// Paths of all shards, in order: those of "name-00001-of-00003.gguf" by their names, else the path
// itself. No I/O.
std::vector<std::string> WeightShards(const std::string& model_path);

// Reads whole files, so it takes as long as the disk does: not for the serving thread. A file is
// remembered by device, inode, size, mtime and ctime. NotFound, PermissionDenied and the like: a
// shard can't be read. Cancelled: asked to. Aborted: a file changed while it was read.
absl::StatusOr<WeightsDigest> ComputeWeightsDigest(const WeightsDigestOptions& options);

}  // namespace parkade
