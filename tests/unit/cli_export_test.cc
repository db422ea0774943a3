// What leaves a tier: whole conversations, forks cut where they leave, and nothing on a failure.
#include <sys/stat.h>

#include "src/format/checksum.h"
#include "src/format/row_cut.h"
#include "tests/support/heap_buffer.h"
#include "tests/unit/cli_transfer_fixture.h"

namespace parkade::test {
namespace {

// What a container holds, park by park.
struct HeldPark {
  ParkRecord record;
  std::vector<std::string> bytes;
};

class ExportTest : public TransferTest {
 protected:
  std::vector<HeldPark> Held() {
    std::vector<HeldPark> parks;
    absl::StatusOr<ContainerFile> file = ContainerFile::Open(File());
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return parks;
    const absl::Status walked = file->Walk(
        [&](const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
          HeldPark park{record, {}};
          for (const ExtentBytes& bytes : payload) park.bytes.emplace_back(ViewOf(bytes));
          parks.push_back(std::move(park));
          return absl::OkStatus();
        },
        nullptr);
    EXPECT_EQ(walked, absl::OkStatus());
    return parks;
  }

  // The bytes that a sample park's extent has when only its first rows are kept.
  std::string FirstRowsOf(const SamplePark& park, std::size_t extent, std::uint32_t rows) const {
    const ExtentInfo& info = park.record.extents[extent];
    std::string bytes(FirstRows(info, rows).raw_bytes, '\0');
    CopyFirstRows(layout_, park.record.summary.stages.stages[info.stage], info, rows,
                  park.payload[extent]->data(), bytes.data());
    return bytes;
  }

  void ExpectWhole(const HeldPark& held, const SamplePark& park) const {
    EXPECT_EQ(held.record.tokens, park.record.tokens);
    EXPECT_EQ(held.record.extents, park.record.extents);
    EXPECT_EQ(held.record.summary.window_rows, park.record.summary.window_rows);
    EXPECT_EQ(held.record.summary.checkpoints, park.record.summary.checkpoints);
    EXPECT_EQ(held.record.summary.stages, park.record.summary.stages);
    for (std::size_t i = 0; i < held.bytes.size(); ++i) {
      EXPECT_TRUE(held.bytes[i] == ViewOf(park.payload[i])) << i;
    }
  }
};

TEST_F(ExportTest, ARootGoesWhole) {
  const std::vector<SamplePark> parks = PutChat(1);
  PutChat(2);
  const auto report = Export(1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->id, Id(1));
  EXPECT_EQ(report->tokens, 300u);
  EXPECT_EQ(report->parks, 4u);
  EXPECT_EQ(report->stages, 2u);
  EXPECT_EQ(report->file_bytes, std::filesystem::file_size(File()));
  EXPECT_EQ(Files(), std::vector<std::string>{"chat.parkade"});
  struct stat info;
  ASSERT_EQ(::stat(File().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::vector<HeldPark> held = Held();
  ASSERT_EQ(held.size(), 4u);
  for (std::size_t i = 0; i < held.size(); ++i) {
    ExpectWhole(held[i], parks[i]);
    EXPECT_EQ(held[i].record.summary.key, (ParkKey{Id(1), static_cast<std::uint32_t>(i)}));
    EXPECT_EQ(held[i].record.summary.created_unix_ms, 1'700'000'000'000);
  }
}

TEST_F(ExportTest, AForkGoesWithWhatLiesBeforeIt) {
  const std::vector<SamplePark> parks = PutChat(1);
  SampleParkSpec spec = Spec(2, 0, 170, 30);
  spec.parent = Id(1);
  spec.parent_tokens = 170;
  spec.window_rows = {{140, 200}};
  spec.checkpoints = {200};
  const SamplePark own = Put(spec);
  const auto report = Export(2);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens, 200u);
  const std::vector<HeldPark> held = Held();
  // The third park, and the one without tokens, lie behind the fork: nothing of them is left.
  ASSERT_EQ(held.size(), 3u);
  ExpectWhole(held[0], parks[0]);
  ExpectWhole(held[2], own);
  EXPECT_TRUE(held[2].record.summary.parent.IsZero());
  EXPECT_EQ(held[2].record.summary.key, (ParkKey{Id(2), 2}));
  const ParkSummary& cut = held[1].record.summary;
  EXPECT_EQ(cut.first_token, 100u);
  EXPECT_EQ(cut.token_count, 70u);
  EXPECT_EQ(cut.page_hashes.size(), 1u);  // the page that ends at 128
  EXPECT_EQ(cut.window_rows, (std::vector<TokenRange>{{150, 170}}));
  EXPECT_EQ(cut.checkpoints, std::vector<std::uint32_t>{140});
  EXPECT_TRUE(std::equal(held[1].record.tokens.begin(), held[1].record.tokens.end(),
                         parks[1].record.tokens.begin()));
  std::size_t next = 0;
  for (std::size_t i = 0; i < parks[1].record.extents.size(); ++i) {
    const ExtentInfo& info = parks[1].record.extents[i];
    const bool state = info.group == RowGroup::kState;
    if (state && info.first > 170) continue;
    const std::uint32_t rows = state ? 1 : std::min(info.rows, 170 - info.first);
    ASSERT_LT(next, held[1].bytes.size());
    EXPECT_TRUE(held[1].bytes[next] == FirstRowsOf(parks[1], i, rows)) << i;
    EXPECT_EQ(held[1].record.extents[next].rows, rows);
    EXPECT_EQ(held[1].record.extents[next].checksum, Checksum(held[1].bytes[next]));
    ++next;
  }
  EXPECT_EQ(next, held[1].bytes.size());
}

TEST_F(ExportTest, NothingOfAnotherContinuationIsInTheFile) {
  const std::vector<SamplePark> parks = PutChat(1);
  SampleParkSpec spec = Spec(2, 0, 170, 30);
  spec.parent = Id(1);
  spec.parent_tokens = 170;
  Put(spec);
  ASSERT_TRUE(Export(2).ok());
  const std::string file = Bytes();
  for (const SamplePark& park : parks) {
    for (std::size_t i = 0; i < park.record.extents.size(); ++i) {
      const ExtentInfo& info = park.record.extents[i];
      const std::string_view bytes = ViewOf(park.payload[i]);
      const Stage& stage = park.record.summary.stages.stages[info.stage];
      for (const PlaneSlice& slice : SlicesOf(layout_, stage, info)) {
        const std::uint64_t row_bytes = slice.bytes / info.rows;
        for (std::uint32_t row = 0; row < info.rows; ++row) {
          const std::string_view one =
              bytes.substr(slice.extent_offset + row * row_bytes, row_bytes);
          const bool state = info.group == RowGroup::kState;
          const bool mine = state ? info.first <= 170 : info.first + row < 170;
          EXPECT_EQ(file.find(one) != std::string::npos, mine)
              << info.first << "+" << row << " of group " << static_cast<int>(info.group);
        }
      }
    }
  }
}

TEST_F(ExportTest, AForkOfAForkOfASession) {
  PutChat(1);
  SampleParkSpec spec = Spec(2, 0, 170, 60);  // leaves at 170
  spec.parent = Id(1);
  spec.parent_tokens = 170;
  Put(spec);
  spec = Spec(3, 0, 120, 30);  // leaves the fork before the fork left: all of it is the root's
  spec.parent = Id(2);
  spec.parent_tokens = 120;
  const SamplePark last = Put(spec);
  spec = Spec(4, 0, 150, 0);  // a session: adds nothing
  spec.parent = Id(3);
  spec.parent_tokens = 150;
  Put(spec);
  Name(*source_, 4, "session", 150);
  const auto report = Export("session");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->id, Id(4));
  EXPECT_EQ(report->name, "session");
  EXPECT_EQ(report->tokens, 150u);
  EXPECT_EQ(report->parks, 3u);
  const std::vector<HeldPark> held = Held();
  ASSERT_EQ(held.size(), 3u);
  EXPECT_EQ(held[1].record.summary.token_count, 20u);
  ExpectWhole(held[2], last);
}

TEST_F(ExportTest, RowsInParts) {
  layout_ = MakeFakeLayout(1, 5u << 20, 0, 0, 1, 9u << 20);
  std::vector<SamplePark> parks;
  for (std::uint32_t i = 0; i < 3; ++i) {
    SampleParkSpec spec = Spec(1, i, i, 1);
    spec.stages = MakeFakeStages(layout_, {1});
    spec.checkpoints = {i + 1};
    parks.push_back(Put(spec));
  }
  ASSERT_GT(parks[0].record.extents.back().parts, 1);
  ASSERT_TRUE(Export(1).ok());
  const std::vector<HeldPark> held = Held();
  ASSERT_EQ(held.size(), 3u);
  for (std::size_t i = 0; i < held.size(); ++i) ExpectWhole(held[i], parks[i]);
}

TEST_F(ExportTest, WhatCannotBeNamed) {
  PutChat(1);
  PutChat(2);
  PutChat(3);
  Name(*source_, 1, "twice", 300);
  Name(*source_, 2, "twice", 300);
  Name(*source_, 3, "", 100);  // forgotten, kept for forks
  EXPECT_EQ(Export("twice").status().message(),
            "2 conversations have the name 'twice'; give an id");
  EXPECT_EQ(Export("nobody").status().message(), "no conversation has the id or name 'nobody'");
  for (const std::uint64_t number : {3, 4}) {
    const std::string id = ToHex(Id(number));
    EXPECT_EQ(Export(number).status().message(), "no conversation has the id or name '" + id + "'");
  }
  EXPECT_TRUE(Files().empty());
}

TEST_F(ExportTest, AShortenedIdNamesOne) {
  PutChat(1);
  PutChat(2);
  PutChat(3);
  Name(*source_, 3, "", 100);  // forgotten, kept for forks
  EXPECT_EQ(Export("0000000000007").status().message(),
            "the ids of 2 conversations begin with 0000000000007; give more digits");
  EXPECT_EQ(Export("000000000000777a").status().message(),
            "no conversation has the id or name '000000000000777a'");
  // Fewer than four digits are a name.
  EXPECT_EQ(Export("000").status().message(), "no conversation has the id or name '000'");
  const auto report = Export("0000000000007778");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->id, Id(1));
}

TEST_F(ExportTest, AFileIsReplacedOnlyOnDemand) {
  PutChat(1);
  std::filesystem::create_directories(root_ + "/files");
  Write("mine");
  EXPECT_EQ(Export(1).status().message(), File() + " is there already; --force replaces it");
  EXPECT_EQ(Bytes(), "mine");
  EXPECT_EQ(Files().size(), 1u);
  ASSERT_TRUE(Export(ToHex(Id(1)), /*replace=*/true).ok());
  EXPECT_TRUE(Check().ok());
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(ExportTest, AFileThatComesMeanwhileStays) {
  PutChat(1);
  const auto report = Export(ToHex(Id(1)), false, [this](std::uint64_t, std::uint64_t) {
    Write("mine");
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsAlreadyExists(report.status())) << report.status();
  EXPECT_EQ(Bytes(), "mine");
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(ExportTest, WhatIsNoPlainFileIsNotReplaced) {
  PutChat(1);
  const std::string id = ToHex(Id(1));
  const std::string pipe = root_ + "/pipe";
  const std::string link = root_ + "/link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(root_ + "/nowhere", link);
  for (const std::string& path : {pipe, link, root_ + "/source"}) {
    for (const bool replace : {false, true}) {
      EXPECT_EQ(ExportConversation(*source_, {id, path, replace}, nullptr).status(),
                absl::InvalidArgumentError(path + " is there and is not a plain file"));
    }
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(ExportTest, NothingIsLeftAfterAFailure) {
  PutChat(1);
  const std::string id = ToHex(Id(1));
  const std::vector<Fault> faults = {
      Failing(TierCall::kReadExtent, 3, Fault::Kind::kFlip),
      Failing(TierCall::kReadExtent, 4, Fault::Kind::kShorten),
      Failing(TierCall::kReadExtents, 2, Fault::Kind::kOmit),
      Failing(TierCall::kReadTokens, 1),
      Failing(TierCall::kReadExtent, 7),
  };
  for (const Fault& fault : faults) {
    source_->ClearFaults();
    source_->AddFault(fault);
    EXPECT_FALSE(Export(id).ok()) << static_cast<int>(fault.call);
    EXPECT_TRUE(Files().empty());
  }
  source_->ClearFaults();
  int calls = 0;
  const auto stopped = Export(id, false, [&calls](std::uint64_t, std::uint64_t) {
    return ++calls < 6 ? absl::OkStatus() : absl::CancelledError("stopped");
  });
  EXPECT_EQ(stopped.status(), absl::CancelledError("stopped"));
  EXPECT_TRUE(Files().empty());
  std::filesystem::remove_all(root_ + "/files");
  EXPECT_TRUE(absl::IsNotFound(
      ExportConversation(*source_, {id, root_ + "/nowhere/file", false}, nullptr).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ExportConversation(*source_, {id, root_ + "/", false}, nullptr).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ExportConversation(*source_, {id, root_ + "/source", true}, nullptr).status()));
}

TEST_F(ExportTest, AGapIsToldAndNotExported) {
  PutChat(1);
  ASSERT_EQ(source_->Remove({{Id(1), 1}}), absl::OkStatus());
  EXPECT_EQ(Export(1).status().message(),
            "of conversation " + ToHex(Id(1)) + " something after 100 tokens is missing");
  SampleParkSpec spec = Spec(2, 0, 20, 30);
  spec.parent = Id(9);
  spec.parent_tokens = 20;
  Put(spec);
  EXPECT_TRUE(absl::IsDataLoss(Export(2).status()));
  EXPECT_TRUE(Files().empty());
}

TEST_F(ExportTest, ProgressCountsEveryStoredByte) {
  PutChat(1);
  std::uint64_t payload = 0;
  for (const ParkSummary& summary : Summaries(*source_)) payload += summary.payload_bytes;
  std::uint64_t last = 0;
  ASSERT_TRUE(Export(ToHex(Id(1)), false, [&](std::uint64_t done, std::uint64_t all) {
                EXPECT_EQ(all, payload);
                EXPECT_GE(done, last);
                last = done;
                return absl::OkStatus();
              }).ok());
  EXPECT_GT(last, payload / 2);
  EXPECT_LT(last, payload);
}

}  // namespace
}  // namespace parkade::test
