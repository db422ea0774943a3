// Every kind of file that RocksDB has, damaged in every way. Nothing that segments hold is lost; a
// start may end inside RocksDB once, and the next one has everything; verifying never does, finds
// nothing wrong after a repair, and changes nothing without one.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <tuple>

#include "tests/crash/disk_crash_process.h"
#include "tests/crash/disk_crash_worker.h"
#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

struct Way {
  std::string name;
  std::string bytes;
  bool deleted = false;
};

std::string FlippedAt(std::string bytes, std::size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  return bytes;
}

std::string ZeroedAt(std::string bytes, std::size_t at, std::size_t size) {
  size = std::min(size, bytes.size() - at);
  return bytes.replace(at, size, size, '\0');
}

// `twin`: the file of that kind of another database; `neighbour`: another kind of this one's.
std::vector<Way> WaysOf(const std::string& bytes, const std::string& twin,
                        const std::string& neighbour) {
  const std::size_t size = bytes.size();
  std::vector<Way> ways = {{"deleted", "", true}};
  const auto add = [&](const std::string& name, std::string damaged) {
    if (damaged != bytes) ways.push_back({name, std::move(damaged)});
  };
  add("emptied", "");
  if (size == 0) return ways;
  for (const std::size_t at :
       {std::size_t{0}, size / 4, size / 2, size * 3 / 4, size - std::min<std::size_t>(size, 53),
        size - std::min<std::size_t>(size, 8), size - 1}) {
    add("flipped at " + std::to_string(at), FlippedAt(bytes, at));
  }
  for (const std::size_t at : {std::size_t{1}, size / 2, size - 1}) {
    add("cut at " + std::to_string(at), bytes.substr(0, at));
  }
  add("zeroed", ZeroedAt(bytes, 0, size));
  add("begin zeroed", ZeroedAt(bytes, 0, 64));
  add("middle zeroed", ZeroedAt(bytes, size / 2, 64));
  add("end zeroed", ZeroedAt(bytes, size - std::min<std::size_t>(size, 64), 64));
  add("swapped with another database's", twin);
  add("swapped with another of its files", neighbour);
  return ways;
}

class DiskCatalogueClasses : public DiskTierTest,
                             public ::testing::WithParamInterface<std::tuple<bool, const char*>> {
 protected:
  DiskCatalogueClasses() {
    if (std::get<0>(GetParam())) {
      ::setenv("PARKADE_CRASH_SEALED", "1", 1);
    } else {
      ::unsetenv("PARKADE_CRASH_SEALED");
    }
  }
  ~DiskCatalogueClasses() override { ::unsetenv("PARKADE_CRASH_SEALED"); }

  // Rows in tables and rows in the log.
  void Fill(const std::string& name, std::uint64_t first) {
    options_ = CrashTierOptions(root_ + "/" + name);
    Open();
    PutConversation(DiskConversation(first), 3);
    PutConversation(DiskConversation(first + 1), 1, DiskConversation(first), 150);
    PutConversation(DiskConversation(first + 2), 1);
    Name(first, "in a table");
    ASSERT_EQ(tier().Forget(DiskConversation(first + 2), {{DiskConversation(first + 2), 0}}),
              absl::OkStatus());
    Open();
    PutConversation(DiskConversation(first + 3), 2);
    Name(first + 3, "in the log");
    tier_.reset();
  }
  void Name(std::uint64_t id, const std::string& name) {
    ConversationAttributes named;
    named.conversation = DiskConversation(id);
    named.pinned = true;
    named.name = name;
    ASSERT_EQ(tier().WriteAttributes({named}, true), absl::OkStatus());
  }
  // Files whose name begins so or, from '*' on, ends so.
  std::vector<std::string> FilesLike(const std::string& name, const std::string& pattern) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_ + "/" + name + "/catalogue")) {
      const std::string file = entry.path().filename().string();
      if (pattern[0] == '*' ? file.ends_with(pattern.substr(1)) : file.starts_with(pattern)) {
        found.push_back(file);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string Bytes(const std::string& name, const std::string& file) const {
    return ReadFile(root_ + "/" + name + "/catalogue/" + file);
  }

  std::string Copy(const std::string& file, const Way& way) {
    const std::string copy = root_ + "/copy";
    fs::remove_all(copy);
    fs::copy(root_ + "/sound", copy, fs::copy_options::recursive);
    const std::string path = copy + "/catalogue/" + file;
    fs::remove(path);
    if (!way.deleted) std::ofstream(path, std::ios::binary) << way.bytes;
    return copy;
  }
  static CrashOutcome Run(const std::string& what, const std::string& directory) {
    CrashOutcome outcome = RunCrashProcess({what, directory}, nullptr);
    std::sort(outcome.lines.begin(), outcome.lines.end());
    return outcome;
  }
  // At most one start ends inside RocksDB.
  CrashOutcome RunTwice(const std::string& what, const std::string& directory) {
    CrashOutcome outcome = Run(what, directory);
    if (outcome.signal == 0) return outcome;
    ++ended_inside_;
    return Run(what, directory);
  }
  std::map<std::string, std::string> Files(const std::string& directory) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      if (entry.is_regular_file() && entry.path().filename() != "LOCK") {
        files[entry.path().string()] = ReadFile(entry.path());
      }
    }
    return files;
  }

  void Judge(const std::string& file, const Way& way) {
    const std::string copy = Copy(file, way);
    const auto before = Files(copy);
    const CrashOutcome looked = Run("--verify", copy);
    EXPECT_EQ(looked.exit_code, 0) << "verify ended by signal " << looked.signal;
    EXPECT_EQ(Files(copy) == before, true) << "looking changed something";
    const CrashOutcome read = RunTwice("--read", copy);
    EXPECT_EQ(read.exit_code, 0) << "signal " << read.signal;
    EXPECT_EQ(read.lines, whole_);

    Copy(file, way);
    EXPECT_EQ(RunTwice("--repair", copy).exit_code, 0);
    const CrashOutcome again = Run("--verify", copy);
    EXPECT_EQ(again.exit_code, 0);
    EXPECT_EQ(again.lines, Lines{}) << "after a repair";
    EXPECT_EQ(Run("--read", copy).lines, whole_) << "after a repair";
  }

  Lines whole_;
  int ended_inside_ = 0;
};

TEST_P(DiskCatalogueClasses, CostNothingThatSegmentsHold) {
  const std::string pattern = std::get<1>(GetParam());
  Fill("other", 11);
  Fill("sound", 1);
  whole_ = Run("--read", root_ + "/sound").lines;
  ASSERT_EQ(whole_.size(), 3u + 1 + 2 + 2) << "parks and names";
  const std::vector<std::string> files = FilesLike("sound", pattern);
  ASSERT_FALSE(files.empty());
  const std::vector<std::string> twins = FilesLike("other", pattern);
  ASSERT_FALSE(twins.empty());
  const std::string neighbour =
      Bytes("sound", FilesLike("sound", pattern == "CURRENT" ? "IDENTITY" : "CURRENT").front());
  int ways = 0;
  for (const std::string& file : {files.front(), files.back()}) {
    if (ways > 0 && files.size() == 1) break;
    for (const Way& way : WaysOf(Bytes("sound", file), Bytes("other", twins.front()), neighbour)) {
      SCOPED_TRACE(file + " " + way.name);
      ++ways;
      Judge(file, way);
    }
  }
  EXPECT_GE(ways, pattern == "LOCK" ? 1 : 10);
  std::cerr << ways << " ways, " << ended_inside_ << " starts ended inside RocksDB\n";
}
INSTANTIATE_TEST_SUITE_P(
    Files, DiskCatalogueClasses,
    ::testing::Combine(::testing::Bool(), ::testing::Values("CURRENT", "MANIFEST", "OPTIONS",
                                                            "IDENTITY", "LOCK", "*.log", "*.sst")),
    [](const auto& instance) {
      std::string name = std::get<0>(instance.param) ? "Sealed" : "Plain";
      for (const char c : std::string(std::get<1>(instance.param))) {
        if (std::isalpha(static_cast<unsigned char>(c)) != 0) name += c;
      }
      return name;
    });

}  // namespace
}  // namespace parkade::test
