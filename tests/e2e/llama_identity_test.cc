// Identity fields in force, and the content digest of the weights, on the tiny models.

#include "src/engine/llama/llama_identity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "parkade/identity.h"
#include "src/engine/llama/llama_weights.h"
#include "tests/e2e/llama_engine.h"

namespace parkade {
namespace {

Identity IdentityOf(const std::string& kind, const ContextOptions& options,
                    const LlamaIdentityExtras& extras = {}) {
  Engine engine(kind, options);
  EXPECT_EQ(engine.status(), absl::OkStatus());
  Identity identity;
  BuildIdentityFields(engine.view(), extras, &identity);
  return identity;
}

TEST(Identity, SizesAndSlotsAreNotPartOfIt) {
  for (const std::string kind : {"dense", "window", "recurrent", "hybrid", "hybrid_window"}) {
    ContextOptions other;
    other.cells = 8192;
    other.sequences = 4;
    other.unified = false;
    const Identity identity = IdentityOf(kind, {});
    EXPECT_EQ(FirstDifference(identity, IdentityOf(kind, other)), "") << kind;
    EXPECT_GE(identity.fields().size(), 17u);
  }
}

TEST(Identity, NamesWhatDiffers) {
  const Identity identity = IdentityOf("dense", {});
  ContextOptions quantised;
  quantised.type = GGML_TYPE_Q8_0;
  EXPECT_EQ(FirstDifference(identity, IdentityOf("dense", quantised)), "kv_type_k");
  EXPECT_EQ(FirstDifference(identity, IdentityOf("hybrid", {})), "architecture");
  ContextOptions scaled;
  scaled.rope_freq_base = 20000.0f;
  EXPECT_EQ(FirstDifference(identity, IdentityOf("dense", scaled)), "rope");
  ContextOptions stretched;
  stretched.yarn_ext_factor = 1.0f;
  EXPECT_EQ(FirstDifference(identity, IdentityOf("dense", stretched)), "yarn");
  ContextOptions full;
  full.swa_full = true;
  EXPECT_EQ(FirstDifference(IdentityOf("window", {}), IdentityOf("window", full)), "window_rows");
  LlamaIdentityExtras adapters;
  adapters.adapters = "abc 1.0";
  EXPECT_EQ(FirstDifference(identity, IdentityOf("dense", {}, adapters)), "adapters");
}

TEST(Identity, RotationIsTheOneInForce) {
  ContextOptions quantised;
  quantised.type = GGML_TYPE_Q8_0;
  const Identity rotated = IdentityOf("dense", quantised);
  ASSERT_EQ(::setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1), 0);
  const Identity plain = IdentityOf("dense", quantised);
  ::unsetenv("LLAMA_ATTN_ROT_DISABLE");
  EXPECT_EQ(FirstDifference(rotated, plain), "kv_rotation");
}

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "parkade-weights-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.memo_path = folder_ + "/memo.json";
    // Files look settled to a clock an hour ahead.
    options_.now_unix_ns = [] {
      return (static_cast<std::int64_t>(std::time(nullptr)) + 3600) * 1'000'000'000;
    };
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  WeightsDigest Compute(const std::string& path) {
    options_.model_path = path;
    absl::StatusOr<WeightsDigest> digest = ComputeWeightsDigest(options_);
    EXPECT_EQ(digest.status(), absl::OkStatus());
    if (!digest.ok()) return {};
    EXPECT_EQ(digest->memo, absl::OkStatus());
    return *digest;
  }

  std::string folder_;
  WeightsDigestOptions options_;
};

std::string Bytes(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + (i >> 12));
  return bytes;
}

TEST_F(Weights, ShardsAreFoundByTheirNames) {
  EXPECT_EQ(WeightShards("/m/a.gguf"), std::vector<std::string>{"/m/a.gguf"});
  const std::vector<std::string> shards = {"/m/a-00001-of-00003.gguf", "/m/a-00002-of-00003.gguf",
                                           "/m/a-00003-of-00003.gguf"};
  EXPECT_EQ(WeightShards(shards[0]), shards);
  EXPECT_EQ(WeightShards(shards[2]), shards);
  for (const std::string odd : {"/m/a-00004-of-00003.gguf", "/m/a-00000-of-00003.gguf",
                                "/m/a-1-of-3.gguf", "-00001-of-00003.gguf", ""}) {
    EXPECT_EQ(WeightShards(odd), std::vector<std::string>{odd});
  }
}

TEST_F(Weights, IsContentAndNothingElse) {
  const std::string bytes = Bytes((9 << 20) + 17);
  const Digest128 digest = Compute(Write("a.gguf", bytes)).digest;
  EXPECT_EQ(Compute(Write("b.gguf", bytes)).digest, digest);
  for (const std::size_t at : {std::size_t{0}, std::size_t{5} << 20, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] ^= 1;
    EXPECT_NE(Compute(Write("c.gguf", other)).digest, digest) << at;
  }
  EXPECT_NE(Compute(Write("d.gguf", bytes.substr(0, bytes.size() - 1))).digest, digest);
  // Where one shard ends and the next begins is content too.
  Write("s-00001-of-00002.gguf", bytes.substr(0, 100));
  const std::string second = Write("s-00002-of-00002.gguf", bytes.substr(100));
  const Digest128 split = Compute(second).digest;
  EXPECT_NE(split, digest);
  EXPECT_EQ(Compute(folder_ + "/s-00001-of-00002.gguf").digest, split);
}

TEST_F(Weights, RemembersUntilTheFileChanges) {
  const std::string path = Write("a.gguf", Bytes(5 << 20));
  const WeightsDigest first = Compute(path);
  EXPECT_EQ(first.read_bytes, 5u << 20);
  struct stat info {};
  ASSERT_EQ(::stat(options_.memo_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::uint64_t done = 0;
  options_.progress = [&](std::uint64_t now, std::uint64_t total) {
    EXPECT_EQ(total, 5u << 20);
    done = now;
  };
  const WeightsDigest second = Compute(path);
  EXPECT_EQ(second.read_bytes, 0u);
  EXPECT_EQ(second.digest, first.digest);
  EXPECT_EQ(done, 5u << 20);
  options_.progress = nullptr;
  // The same bytes at another time: read again, and the same digest.
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  const WeightsDigest third = Compute(path);
  EXPECT_EQ(third.read_bytes, 5u << 20);
  EXPECT_EQ(third.digest, first.digest);
  // A damaged memo costs reading, no more.
  for (const std::string damage : {"", "{", "{\"version\":1,\"files\":[{\"device\":\"x\"}]}"}) {
    std::ofstream(options_.memo_path, std::ios::binary | std::ios::trunc) << damage;
    EXPECT_EQ(Compute(path).read_bytes, 5u << 20);
    EXPECT_EQ(Compute(path).read_bytes, 0u);
  }
}

TEST_F(Weights, FreshFilesAreNotRemembered) {
  options_.now_unix_ns = [] {
    return static_cast<std::int64_t>(std::time(nullptr)) * 1'000'000'000;
  };
  const std::string path = Write("a.gguf", Bytes(1000));
  EXPECT_EQ(Compute(path).read_bytes, 1000u);
  EXPECT_EQ(Compute(path).read_bytes, 1000u);
  EXPECT_FALSE(std::filesystem::exists(options_.memo_path));
}

TEST_F(Weights, FailuresAreNamed) {
  options_.model_path = folder_ + "/none.gguf";
  EXPECT_EQ(ComputeWeightsDigest(options_).status().code(), absl::StatusCode::kNotFound);
  Write("s-00001-of-00002.gguf", "x");
  options_.model_path = folder_ + "/s-00001-of-00002.gguf";
  EXPECT_EQ(ComputeWeightsDigest(options_).status().code(), absl::StatusCode::kNotFound);
  std::atomic<bool> cancel{true};
  options_.cancel = &cancel;
  options_.model_path = Write("a.gguf", Bytes(1000));
  EXPECT_EQ(ComputeWeightsDigest(options_).status().code(), absl::StatusCode::kCancelled);
  // The file grows while it is read.
  options_.cancel = nullptr;
  bool grown = false;
  options_.progress = [&](std::uint64_t, std::uint64_t) {
    if (!grown) std::ofstream(options_.model_path, std::ios::app) << "more";
    grown = true;
  };
  EXPECT_EQ(ComputeWeightsDigest(options_).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(grown);
  // No place for the memo: the digest stands.
  options_.progress = nullptr;
  options_.memo_path = folder_ + "/no/such/memo.json";
  const absl::StatusOr<WeightsDigest> digest = ComputeWeightsDigest(options_);
  ASSERT_EQ(digest.status(), absl::OkStatus());
  EXPECT_FALSE(digest->memo.ok());
}

}  // namespace
}  // namespace parkade
