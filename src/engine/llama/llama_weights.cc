#include "src/engine/llama/llama_weights.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "src/format/checksum.h"

namespace parkade {
namespace {

// Part of what the digest is, like the version of the memo that remembers it.
constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
constexpr int kMemoVersion = 1;
constexpr std::size_t kMostRemembered = 256;
// Timestamps move in ticks: a file written again within the tick that was read would look the same.
constexpr std::int64_t kSettledNs = 2'000'000'000;

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Failed(std::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(std::string(what), " ", path));
}

// What tells one state of a file from another.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

std::int64_t Nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

absl::StatusOr<FileStamp> StampOf(const File& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return Failed("looking at", path);
  return FileStamp{info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
                   Nanoseconds(info.st_mtim), Nanoseconds(info.st_ctim)};
}

struct Remembered {
  FileStamp stamp;
  Digest128 digest;
};

std::vector<Remembered> LoadMemo(const std::string& path) {
  std::vector<Remembered> entries;
  std::ifstream in(path, std::ios::binary);
  if (!in) return entries;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  try {
    const nlohmann::json memo = nlohmann::json::parse(text);
    if (memo.at("version").get<int>() != kMemoVersion) return entries;
    for (const nlohmann::json& file : memo.at("files")) {
      const auto digest = DigestFromHex(file.at("digest").get<std::string>());
      if (!digest.has_value()) continue;
      entries.push_back(
          {{file.at("device").get<std::uint64_t>(), file.at("inode").get<std::uint64_t>(),
            file.at("size").get<std::uint64_t>(), file.at("mtime_ns").get<std::int64_t>(),
            file.at("ctime_ns").get<std::int64_t>()},
           *digest});
    }
  } catch (const std::exception&) {
    // swallow: a damaged memo only costs reading the weights again, and is then written anew.
    entries.clear();
  }
  return entries;
}

std::string MemoText(const std::vector<Remembered>& entries) {
  nlohmann::json files = nlohmann::json::array();
  for (const Remembered& entry : entries) {
    files.push_back({{"device", entry.stamp.device},
                     {"inode", entry.stamp.inode},
                     {"size", entry.stamp.size},
                     {"mtime_ns", entry.stamp.mtime_ns},
                     {"ctime_ns", entry.stamp.ctime_ns},
                     {"digest", ToHex(entry.digest)}});
  }
  return nlohmann::json({{"version", kMemoVersion}, {"files", files}}).dump(1) + "\n";
}

absl::Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("writing", path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : Failed("syncing", path);
}

// Readers see the old memo or the new one. mkstemp makes the file with mode 0600.
absl::Status SaveMemo(const std::string& path, std::vector<Remembered> entries) {
  if (entries.size() > kMostRemembered) {
    entries.erase(entries.begin(), entries.end() - kMostRemembered);
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return Failed("making", temporary);
  absl::Status status = WriteAll(fd, MemoText(entries), temporary);
  if (::close(fd) != 0 && status.ok()) status = Failed("closing", temporary);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = Failed("renaming to", path);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

class Digester {
 public:
  Digester(const WeightsDigestOptions& options, std::uint64_t total_bytes)
      : options_(options), total_bytes_(total_bytes), buffer_(new char[kBlockBytes]) {}

  absl::StatusOr<Digest128> Read(const File& file, const std::string& path) {
    // swallow: advice only.
    (void)::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
    std::string blocks;
    for (;;) {
      if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) {
        return absl::CancelledError("digest of the weights");
      }
      absl::StatusOr<std::size_t> got = ReadBlock(file, path);
      if (!got.ok()) return got.status();
      if (*got == 0) break;
      absl::StrAppend(&blocks, ToHex(Checksum({buffer_.get(), *got})), "\n");
      read_bytes_ += *got;
      Advance(*got);
    }
    return Checksum(blocks);
  }

  void Advance(std::uint64_t bytes) {
    done_bytes_ += bytes;
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  std::uint64_t read_bytes() const { return read_bytes_; }

 private:
  // A whole block, unless the file ends in it.
  absl::StatusOr<std::size_t> ReadBlock(const File& file, const std::string& path) {
    std::size_t filled = 0;
    while (filled < kBlockBytes) {
      const ssize_t got = ::read(file.fd(), buffer_.get() + filled, kBlockBytes - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed("reading", path);
      if (got == 0) break;
      filled += static_cast<std::size_t>(got);
    }
    return filled;
  }

  const WeightsDigestOptions& options_;
  const std::uint64_t total_bytes_;
  const std::unique_ptr<char[]> buffer_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
};

const Remembered* Find(const std::vector<Remembered>& memo, const FileStamp& stamp) {
  for (const Remembered& entry : memo) {
    if (entry.stamp == stamp) return &entry;
  }
  return nullptr;
}

Digest128 Combine(const std::vector<Digest128>& parts) {
  if (parts.size() == 1) return parts[0];
  std::string text;
  for (const Digest128& part : parts) absl::StrAppend(&text, ToHex(part), "\n");
  return Checksum(text);
}

}  // namespace

std::vector<std::string> WeightShards(const std::string& model_path) {
  // "-00001-of-00003.gguf"
  constexpr std::size_t kSuffix = 20;
  if (model_path.size() <= kSuffix) return {model_path};
  const std::string suffix = model_path.substr(model_path.size() - kSuffix);
  int shard = 0;
  int count = 0;
  if (std::sscanf(suffix.c_str(), "-%5d-of-%5d.gguf", &shard, &count) != 2 || shard < 1 ||
      shard > count || suffix != absl::StrFormat("-%05d-of-%05d.gguf", shard, count)) {
    return {model_path};
  }
  const std::string prefix = model_path.substr(0, model_path.size() - kSuffix);
  std::vector<std::string> paths;
  for (int i = 1; i <= count; ++i) {
    paths.push_back(absl::StrFormat("%s-%05d-of-%05d.gguf", prefix, i, count));
  }
  return paths;
}

absl::StatusOr<WeightsDigest> ComputeWeightsDigest(const WeightsDigestOptions& options) {
  struct Shard {
    std::string path;
    std::unique_ptr<File> file;
    FileStamp stamp;
  };
  std::vector<Shard> shards;
  std::uint64_t total_bytes = 0;
  for (const std::string& path : WeightShards(options.model_path)) {
    auto file = std::make_unique<File>(path);
    if (file->fd() < 0) return Failed("opening", path);
    absl::StatusOr<FileStamp> stamp = StampOf(*file, path);
    if (!stamp.ok()) return stamp.status();
    total_bytes += stamp->size;
    shards.push_back({path, std::move(file), *stamp});
  }
  const bool remember = !options.memo_path.empty();
  std::vector<Remembered> memo;
  if (remember) memo = LoadMemo(options.memo_path);
  Digester digester(options, total_bytes);
  std::vector<Digest128> parts;
  bool memo_changed = false;
  for (const Shard& shard : shards) {
    if (const Remembered* known = Find(memo, shard.stamp)) {
      parts.push_back(known->digest);
      digester.Advance(shard.stamp.size);
      continue;
    }
    const std::int64_t begun_ns = remember ? options.now_unix_ns() : 0;
    absl::StatusOr<Digest128> digest = digester.Read(*shard.file, shard.path);
    if (!digest.ok()) return digest.status();
    absl::StatusOr<FileStamp> after = StampOf(*shard.file, shard.path);
    if (!after.ok()) return after.status();
    if (*after != shard.stamp) {
      return absl::AbortedError(absl::StrCat(shard.path, " changed while it was read"));
    }
    parts.push_back(*digest);
    if (remember && shard.stamp.ctime_ns + kSettledNs <= begun_ns) {
      memo.push_back({shard.stamp, *digest});
      memo_changed = true;
    }
  }
  WeightsDigest result{Combine(parts), digester.read_bytes(), absl::OkStatus()};
  if (memo_changed) result.memo = SaveMemo(options.memo_path, std::move(memo));
  return result;
}

}  // namespace parkade
