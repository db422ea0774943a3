// Damage in the disk tier's segments, seen through the whole cache: counted once, given up, not
// asked for again; what is decoded afterwards is what a process without a cache would hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/disk_byte_classes.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

RigOptions DiskOnly() {
  RigOptions options;
  options.ram = false;
  options.disk = true;
  return options;
}

class CacheDamage : public ::testing::Test {
 protected:
  // One chat in three parks of 200 tokens, another in one.
  CacheDamage() : rig_(DiskOnly()), chat_(Tokens(1, 600)), other_(Tokens(2, 300)) {
    const auto engine = rig_.MakeEngine();
    for (const std::size_t end : {200, 400, 600}) {
      engine->Append(absl::MakeConstSpan(chat_).subspan(end - 200, 200));
      EXPECT_TRUE(rig_.Park(*engine).complete);
    }
    const auto second = rig_.MakeEngine();
    second->Append(other_);
    EXPECT_TRUE(rig_.Park(*second).complete);
    for (const auto& entry : fs::recursive_directory_iterator(rig_.folder() + "/segments")) {
      if (entry.is_regular_file()) segments_.push_back(entry.path());
    }
    std::sort(segments_.begin(), segments_.end(),
              [](const fs::path& a, const fs::path& b) { return a.filename() < b.filename(); });
    EXPECT_EQ(segments_.size(), 1u + 3 + 1) << "the secret and the parks";
    rig_.Close();
    fs::copy(rig_.folder(), rig_.folder() + "-sound", fs::copy_options::recursive);
  }
  ~CacheDamage() override {
    rig_.Close();
    fs::remove_all(rig_.folder() + "-sound");
  }

  const fs::path& Damageable() const { return segments_[2]; }
  void Restore() {
    rig_.Close();
    fs::remove_all(rig_.folder());
    fs::copy(rig_.folder() + "-sound", rig_.folder(), fs::copy_options::recursive);
  }
  static std::string Read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void Write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  static std::vector<Token> Continued(std::vector<Token> tokens) {
    for (const Token token : Tokens(9, 40)) tokens.push_back(token);
    return tokens;
  }

  // The same question three times, each by an engine that holds nothing: at first the damage shows,
  // then it has been given up, then what was decoded in its place is parked. Run checks that every
  // engine ends with exactly the rows that decoding would have given it.
  void Judge(std::uint64_t corrupt) {
    const std::vector<Token> prompt = Continued(chat_);
    const auto first = rig_.MakeEngine();
    const Restored damaged = rig_.Run(*first, prompt);
    const std::uint32_t left = corrupt == 0 ? 600 : 200;
    EXPECT_EQ(damaged.record.reused_tokens, left);
    EXPECT_EQ(rig_.sink().events().corrupt, std::vector<TierKind>(corrupt, TierKind::kDisk));

    std::set<std::uint32_t> asked;
    rig_.durable().SetObserver([&asked](const CallSubject& call) {
      if (call.call != TierCall::kReadExtent && call.call != TierCall::kReadExtents) return;
      for (const ParkKey& key : call.keys) asked.insert(key.park);
    });
    const auto second = rig_.MakeEngine();
    EXPECT_EQ(rig_.Run(*second, prompt).record.reused_tokens, left);
    rig_.durable().SetObserver(nullptr);
    EXPECT_EQ(asked.contains(1), corrupt == 0) << "asked for what was given up";
    EXPECT_EQ(rig_.sink().events().corrupt.size(), corrupt) << "counted again";

    EXPECT_TRUE(rig_.Park(*first).complete);
    const auto third = rig_.MakeEngine();
    EXPECT_GE(rig_.Run(*third, Continued(prompt)).record.reused_tokens, 640u);
    const auto fourth = rig_.MakeEngine();
    EXPECT_EQ(rig_.Run(*fourth, Continued(other_)).record.reused_tokens, 300u) << "another chat";
    EXPECT_EQ(rig_.sink().events().corrupt.size(), corrupt);
  }
  void Reopen() {
    rig_.sink().Reset();
    rig_.Open();
  }

  Rig rig_;
  const std::vector<Token> chat_;
  const std::vector<Token> other_;
  std::vector<fs::path> segments_;
};

TEST_F(CacheDamage, ByEveryKindOfByte) {
  const std::string sound = Read(Damageable());
  const std::string other = Read(segments_[3]);
  int seen = 0;
  for (const ByteClass& where : ByteClassesOf(sound, nullptr)) {
    for (const ByteDamage damage : kByteDamages) {
      SCOPED_TRACE(where.name + ", " + DamageName(damage));
      const bool payload = where.name.find("extent payload") != std::string::npos;
      // Of what is not read back here, one way each is enough; the tier's own tests do them all.
      if (!payload && damage != ByteDamage::kZeroed) continue;
      const std::string damaged = Damaged(sound, where, damage, other);
      if (damaged == sound) continue;
      Restore();
      Write(Damageable(), damaged);
      Reopen();
      // The rest of a segment is read only when RocksDB has lost its rows.
      Judge(payload ? 1 : 0);
      seen += payload ? 1 : 0;
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(seen, 12);
}

TEST_F(CacheDamage, ByAFileThatIsGoneAtAStart) {
  Restore();
  fs::remove(Damageable());
  Reopen();
  Judge(1);
}

TEST_F(CacheDamage, ByAFileThatGoesWhileItIsInUse) {
  Restore();
  Reopen();
  fs::remove(Damageable());
  Judge(1);
}

TEST_F(CacheDamage, ByAFileThatIsCutWhileItIsInUse) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{5000}}) {
    Restore();
    Reopen();
    fs::resize_file(Damageable(), bytes);
    Judge(1);
  }
}

TEST_F(CacheDamage, ByTwoFilesThatWereSwapped) {
  Restore();
  const std::string one = Read(segments_[2]);
  const std::string two = Read(segments_[3]);
  ASSERT_EQ(one.size(), two.size());
  Write(segments_[2], two);
  Write(segments_[3], one);
  Reopen();
  Judge(1);
}

}  // namespace
}  // namespace parkade::test
