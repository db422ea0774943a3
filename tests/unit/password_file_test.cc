#include "src/server/password_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace parkade {
namespace {

class PasswordFileTest : public ::testing::Test {
 protected:
  PasswordFileTest() {
    std::string name =
        (std::filesystem::temp_directory_path() / "parkade-password-XXXXXX").string();
    root_ = mkdtemp(name.data());
    path_ = root_ + "/password";
  }
  ~PasswordFileTest() override { std::filesystem::remove_all(root_); }

  std::string Write(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << content;
    EXPECT_EQ(::chmod(path_.c_str(), mode), 0);
    return path_;
  }
  std::string ErrorOf(const std::string& path) {
    const absl::Status status = ReadPasswordFile(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  std::string root_;
  std::string path_;
};

TEST_F(PasswordFileTest, IsReadWithoutBlanksAroundIt) {
  EXPECT_EQ(*ReadPasswordFile(Write("s3cret")), "s3cret");
  EXPECT_EQ(*ReadPasswordFile(Write(" s3cret of two words\r\n\n", 0400)), "s3cret of two words");
  // It is no URL: nothing is decoded.
  EXPECT_EQ(*ReadPasswordFile(Write("s3%20cret@:/")), "s3%20cret@:/");
  EXPECT_EQ(*ReadPasswordFile(Write(std::string(4096, 'p'))), std::string(4096, 'p'));
  // As a mounted secret is.
  const std::string link = root_ + "/link";
  ASSERT_EQ(::symlink(Write("s3cret").c_str(), link.c_str()), 0);
  EXPECT_EQ(*ReadPasswordFile(link), "s3cret");
}

TEST_F(PasswordFileTest, WhatIsWrongIsOneLineThatHelpsAndShowsNothing) {
  EXPECT_EQ(ErrorOf(root_ + "/nothing"), "password file " + root_ +
                                             "/nothing can't be read: No such file or directory");
  EXPECT_EQ(ErrorOf(root_), "password file " + root_ + " is not a file");
  for (const mode_t mode : {0640, 0604, 0610, 0666}) {
    EXPECT_EQ(ErrorOf(Write("s3cret", mode)),
              "password file " + path_ + " is open to others; chmod 600 " + path_);
  }
  EXPECT_EQ(ErrorOf(Write("")), "password file " + path_ + " is empty");
  EXPECT_EQ(ErrorOf(Write(" \n")), "password file " + path_ + " is empty");
  EXPECT_EQ(ErrorOf(Write(std::string(4097, 'p'))),
            "password file " + path_ + " is larger than 4096 bytes");
}

}  // namespace
}  // namespace parkade
