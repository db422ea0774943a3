#include "tests/support/disk_checks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "src/format/checksum.h"
#include "src/format/heap_buffer.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

std::set<ParkKey> Keys(const std::vector<ParkSummary>& summaries) {
  std::set<ParkKey> keys;
  for (const ParkSummary& summary : summaries) keys.insert(summary.key);
  return keys;
}

}  // namespace

std::vector<ParkSummary> Summaries(Tier& tier) {
  std::vector<ParkSummary> summaries;
  EXPECT_EQ(tier.Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }),
            absl::OkStatus());
  return summaries;
}

absl::Status CheckPark(Tier& tier, const ParkSummary& summary, const ExtentCheck& check) {
  auto tokens = tier.ReadTokens(summary.key);
  if (!tokens.ok()) return tokens.status();
  if (tokens->size() != summary.token_count) return absl::DataLossError("other tokens");
  auto extents = tier.ReadExtents(summary.key);
  if (!extents.ok()) return extents.status();
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < extents->size(); ++i) {
    auto read = tier.ReadExtent(summary.key, i, MakeHeapBuffer);
    if (!read.ok()) return read.status();
    const absl::Span<const char> view((*read)->data(), (*read)->size());
    if (Checksum(view) != (*extents)[i].checksum) return absl::DataLossError("checksum");
    if (check) {
      if (absl::Status s = check(summary.key, i, view); !s.ok()) return s;
    }
    bytes += view.size();
  }
  if (bytes != summary.payload_bytes) return absl::DataLossError("not all of its bytes");
  return absl::OkStatus();
}

void ExpectWholeOrAbsent(Tier& tier, const std::vector<ParkSummary>& summaries,
                         const ExtentCheck& check) {
  std::map<ConversationId, std::uint32_t> ends;  // tokens from its begin on, without a gap
  for (const ParkSummary& summary : summaries) {
    const absl::Status whole = CheckPark(tier, summary, check);
    EXPECT_EQ(whole, absl::OkStatus()) << summary.key.conversation.low << "/" << summary.key.park;
    std::uint32_t& end =
        ends.try_emplace(summary.key.conversation, summary.parent_tokens).first->second;
    if (summary.token_count == 0) {  // only a state or window rows, at a position before
      EXPECT_LE(summary.first_token, end);
      continue;
    }
    EXPECT_EQ(summary.first_token, end)
        << "a gap before " << summary.key.conversation.low << "/" << summary.key.park;
    end = summary.first_token + summary.token_count;
  }
  for (const ParkSummary& summary : summaries) {
    if (summary.parent.IsZero()) continue;
    EXPECT_GE(ends[summary.parent], summary.parent_tokens)
        << summary.key.conversation.low << " is a fork of what is not there";
  }
}

void ExpectNoFileWithoutOwner(const DiskTierOptions& options) {
  EXPECT_TRUE(fs::is_empty(options.directory + "/temporary"));
  for (const auto& entry : fs::directory_iterator(options.directory)) {
    EXPECT_EQ(entry.path().filename().string().find("catalogue."), std::string::npos) << entry;
  }
  const auto report = VerifyDiskTier(options.directory, false, nullptr, options.key);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->findings, std::vector<std::string>{});
}

void ExpectCatalogueEqualsScan(const DiskTierOptions& options, const std::string& scratch,
                               const std::vector<ParkSummary>& summaries) {
  fs::remove_all(scratch);
  fs::create_directory(scratch);
  // Segments are never written again, so second names are as good as copies.
  fs::copy(options.directory + "/segments", scratch + "/segments",
           fs::copy_options::recursive | fs::copy_options::create_hard_links);
  for (const char* name : {"VERSION", "KEY"}) {
    const std::string path = options.directory + "/" + name;
    if (fs::exists(path)) fs::copy(path, scratch);
  }
  DiskTierOptions scanned = options;
  scanned.directory = scratch;
  auto opened = OpenDiskTier(scanned);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Keys(Summaries(**opened)), Keys(summaries));
  opened->reset();
  fs::remove_all(scratch);
}

}  // namespace parkade::test
