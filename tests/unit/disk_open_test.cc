// Who may open a directory, and what opening does to it.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

class DiskOpenTest : public DiskTierTest {
 protected:
  absl::Status OpenStatus() { return OpenDiskTier(options_).status(); }
  void WriteFile(const std::string& name, const std::string& content) {
    fs::create_directories(directory());
    std::ofstream(directory() + "/" + name) << content;
  }
  std::vector<std::string> TopLevel() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(DiskOpenTest, MakesAPrivateDirectoryWithParents) {
  options_.directory = root_ + "/a/b/tier/";
  const mode_t old = ::umask(0);
  Open();
  PutConversation(DiskConversation(1), 2);
  tier_.reset();
  ::umask(old);
  options_.directory = root_ + "/a/b/tier";
  EXPECT_EQ(TopLevel(),
            (std::vector<std::string>{"LOCK", "VERSION", "catalogue", "segments", "temporary"}));
  struct stat info;
  ASSERT_EQ(::stat(directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory())) {
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    const mode_t wanted = S_ISDIR(info.st_mode) ? 0700 : 0600;
    EXPECT_EQ(info.st_mode & 0777, wanted) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 8);
}

TEST_F(DiskOpenTest, ADirectoryOfOursIsMadePrivate) {
  fs::create_directories(directory());
  ASSERT_EQ(::chmod(directory().c_str(), 0755), 0);
  Open();
  struct stat info;
  ASSERT_EQ(::stat(directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(DiskOpenTest, TheSecondOneIsToldWhoHoldsIt) {
  Open();
  const absl::Status refused = OpenStatus();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), directory() + " is in use by another process (pid " +
                                   std::to_string(::getpid()) +
                                   "); end it, or give another directory");
  EXPECT_EQ(VerifyDiskTier(directory(), false, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  tier_.reset();
  EXPECT_EQ(OpenStatus(), absl::OkStatus());
}

TEST_F(DiskOpenTest, RefusesWhatIsNotOursAndTouchesNothing) {
  WriteFile("notes.txt", "mine");
  const absl::Status foreign = OpenStatus();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(foreign.message().find("notes.txt"), absl::string_view::npos) << foreign;
  EXPECT_EQ(TopLevel(), std::vector<std::string>{"notes.txt"});

  fs::remove(directory() + "/notes.txt");
  fs::create_directory(directory() + "/LOCK");
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kInvalidArgument);
  fs::remove(directory() + "/LOCK");
  fs::create_symlink(root_, directory() + "/segments");
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TopLevel(), std::vector<std::string>{"segments"});
}

TEST_F(DiskOpenTest, RefusesLinksFilesAndOtherOwners) {
  fs::create_directory(root_ + "/real");
  fs::create_directory_symlink(root_ + "/real", directory());
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_empty(root_ + "/real"));
  fs::remove(directory());
  std::ofstream(directory()) << "a file";
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kInvalidArgument);
  fs::remove(directory());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  fs::create_directory(directory());
  ASSERT_EQ(::chown(directory().c_str(), 12345, 12345), 0);
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_empty(directory()));
}

TEST_F(DiskOpenTest, RefusesPipesAndLinksInPlaceOfItsFilesAndWaitsForNone) {
  Open();
  tier_.reset();
  const std::string target = root_ + "/target";
  std::ofstream(target) << "mine";
  for (const std::string name : {"VERSION", "KEY", "LOCK", "catalogue.opening"}) {
    const std::string path = directory() + "/" + name;
    const std::string old = fs::exists(path) ? ReadFile(path) : "";
    for (const bool link : {false, true}) {
      fs::remove(path);
      if (link) {
        fs::create_symlink(target, path);
      } else {
        ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
      }
      const absl::Status refused = OpenStatus();
      EXPECT_EQ(refused, absl::InvalidArgumentError(path + " is not what a disk tier has there"));
      EXPECT_EQ(VerifyDiskTier(directory(), true, nullptr).status(), refused);
    }
    fs::remove(path);
    if (!old.empty()) std::ofstream(path) << old;
  }
  EXPECT_EQ(ReadFile(target), "mine");
  Open();
}

TEST_F(DiskOpenTest, WhatIsNoFileAmongSegmentsIsTakenAwayAndNotFollowed) {
  Open();
  PutConversation(DiskConversation(1), 3);
  tier_.reset();
  const fs::path last = Segments().back();
  const std::string elsewhere = root_ + "/elsewhere";
  fs::create_directory(elsewhere);
  fs::copy_file(last, elsewhere + "/segment");
  fs::remove(last);
  fs::create_symlink(elsewhere + "/segment", last);
  const std::string folder = directory() + "/segments/";
  const std::string unused = fs::exists(folder + "fd") ? folder + "fc" : folder + "fd";
  fs::create_directory_symlink(elsewhere, unused);
  const std::string pipe = Segments().front().parent_path().string() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // Which key, if any, is then looked for among the segments.
  fs::remove(directory() + "/VERSION");
  const auto report = VerifyDiskTier(directory(), false, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->orphan_files, 3u);
  EXPECT_EQ(report->damaged_rows, 1u);
  Open();
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1}}}));
  EXPECT_FALSE(fs::is_symlink(last));
  EXPECT_FALSE(fs::is_symlink(unused));
  EXPECT_FALSE(fs::exists(pipe));
  EXPECT_TRUE(fs::exists(elsewhere + "/segment"));
}

TEST_F(DiskOpenTest, ACatalogueOfLinksOrPipesIsSetAsideAndRebuilt) {
  Open();
  PutConversation(DiskConversation(1), 2);
  const std::string current = directory() + "/catalogue/CURRENT";
  const std::string elsewhere = root_ + "/CURRENT";
  for (const bool link : {false, true}) {
    tier_.reset();
    fs::rename(current, elsewhere);
    if (link) {
      fs::create_symlink(elsewhere, current);
    } else {
      ASSERT_EQ(::mkfifo(current.c_str(), 0600), 0);
    }
    const auto report = VerifyDiskTier(directory(), false, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->findings.size(), 1u);
    EXPECT_EQ(report->findings[0], "catalogue/CURRENT is not a file of ours");
    Open();
    EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1}}}));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(current)));
    EXPECT_TRUE(fs::exists(elsewhere));
  }
}

TEST_F(DiskOpenTest, RefusesANewerVersionBeforeItLooksAtNames) {
  Open();
  tier_.reset();
  const std::string old = ReadFile(directory() + "/VERSION");
  EXPECT_EQ(old.substr(0, 15), "parkade-disk 1 ");
  const std::string text = "parkade-disk 3";
  char line[64];
  std::snprintf(line, sizeof(line), "%s %016llx\n", text.c_str(),
                static_cast<unsigned long long>(Checksum(text).low));
  WriteFile("VERSION", line);
  WriteFile("something-new", "");
  const absl::Status refused = OpenStatus();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("newer version (format 3"), absl::string_view::npos) << refused;
  EXPECT_EQ(ReadFile(directory() + "/VERSION"), line);

  fs::remove(directory() + "/something-new");
  WriteFile("VERSION", "parkade-disk 3 damaged");
  Open();
  EXPECT_EQ(ReadFile(directory() + "/VERSION"), old);
}

TEST_F(DiskOpenTest, EmptiesTheTemporaryFolderAndDropsStrays) {
  Open();
  PutConversation(DiskConversation(1), 2);
  tier_.reset();
  const std::size_t segments = Segments().size();
  WriteFile("temporary/0000000000000001.segment", "half a segment");
  fs::create_directory(directory() + "/temporary/folder");
  WriteFile("temporary/folder/file", "");
  fs::create_directories(directory() + "/segments/01");
  WriteFile("segments/01/0000000000000001.segment", "not a segment");
  WriteFile("segments/01/0000000000000002.segment", "in the wrong folder");
  WriteFile("segments/01/readme", "");
  WriteFile("segments/readme", "");
  Open();
  EXPECT_TRUE(fs::is_empty(directory() + "/temporary"));
  EXPECT_EQ(Segments().size(), segments);
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1}}}));
}

TEST_F(DiskOpenTest, OpeningReadsNoPayload) {
  Open();
  PutConversation(DiskConversation(1), 3);
  Open();
  int parks = 0;
  ASSERT_EQ(tier().Enumerate([&](const ParkSummary&) { ++parks; }), absl::OkStatus());
  ASSERT_TRUE(tier().ReadExtents({DiskConversation(1), 2}).ok());
  ASSERT_TRUE(tier().ReadTokens({DiskConversation(1), 2}).ok());
  EXPECT_EQ(parks, 3);
  EXPECT_EQ(tier().usage().read_bytes, 0u);
}

}  // namespace
}  // namespace parkade::test
