#include "src/server/key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace parkade {
namespace {

class KeyFileTest : public ::testing::Test {
 protected:
  KeyFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "parkade-key-XXXXXX").string();
    root_ = mkdtemp(name.data());
    path_ = root_ + "/key";
  }
  ~KeyFileTest() override { std::filesystem::remove_all(root_); }

  std::string Write(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << content;
    EXPECT_EQ(::chmod(path_.c_str(), mode), 0);
    return path_;
  }
  std::string ErrorOf(const std::string& path) {
    const absl::Status status = ReadKeyFile(path).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  std::string root_;
  std::string path_;
};

TEST_F(KeyFileTest, IsReadRawAndAsDigits) {
  EXPECT_EQ(*ReadKeyFile(""), nullptr);
  const auto raw = ReadKeyFile(Write(std::string(32, '\0')));
  ASSERT_TRUE(raw.ok()) << raw.status();
  const auto digits = ReadKeyFile(Write(std::string(64, '0') + "\n", 0400));
  ASSERT_TRUE(digits.ok()) << digits.status();
  EXPECT_EQ((*raw)->id(), (*digits)->id());
  // As a mounted secret is.
  const std::string link = root_ + "/link";
  ASSERT_EQ(::symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_EQ((*ReadKeyFile(link))->id(), (*raw)->id());
}

TEST_F(KeyFileTest, WhatIsWrongIsOneLineThatHelpsAndShowsNothing) {
  EXPECT_EQ(ErrorOf(root_ + "/nothing"),
            "key file " + root_ + "/nothing can't be read: No such file or directory");
  EXPECT_EQ(ErrorOf(root_), "key file " + root_ + " is not a file");
  EXPECT_EQ(ErrorOf(Write(std::string(32, 'k'), 0640)),
            "key file " + path_ + " is open to others; chmod 600 " + path_);
  const std::string no_key = "key file " + path_ +
                             ": a key is 32 bytes, or 64 hexadecimal digits; if there is none "
                             "yet, make one with: (umask 077; openssl rand -hex 32 > new.key)";
  for (const std::size_t size : {0, 31, 33, 66, 67, 100000}) {
    EXPECT_EQ(ErrorOf(Write(std::string(size, 'a'))), no_key) << size;
  }
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(pipe), "key file " + pipe + " is not a file");
  EXPECT_EQ(ErrorOf("/dev/null"), "key file /dev/null is not a file");
  EXPECT_EQ(ErrorOf("/dev/zero"), "key file /dev/zero is not a file");
}

TEST_F(KeyFileTest, AnotherUsersIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Write(std::string(32, 'k'));
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(ErrorOf(path_), "key file " + path_ + " belongs to another user");
}

}  // namespace
}  // namespace parkade
