// What enters a tier: the whole conversation with hashes of its own, or nothing.
#include <sys/stat.h>

#include "src/format/checksum.h"
#include "src/format/wire.h"
#include "tests/support/heap_buffer.h"
#include "tests/unit/cli_transfer_fixture.h"
#include "tests/unit/format_container_samples.h"

namespace parkade::test {
namespace {

class ImportTest : public TransferTest {
 protected:
  void ExpectEmptyTarget() {
    EXPECT_TRUE(Summaries(*target_).empty());
    EXPECT_TRUE(Attributes(*target_).empty());
  }

  // Reopens, so that only what lasts counts, and compares the target's parks with samples.
  void ExpectInTarget(const ConversationId& id, const std::vector<SamplePark>& parks) {
    target_.reset();
    target_ = Open("target");
    std::vector<ParkSummary> found;
    for (const ParkSummary& summary : Summaries(*target_)) {
      if (summary.key.conversation == id) found.push_back(summary);
    }
    ASSERT_EQ(found.size(), parks.size());
    std::vector<Token> tokens;
    std::vector<std::uint64_t> hashes;
    for (std::size_t i = 0; i < parks.size(); ++i) {
      EXPECT_EQ(found[i].key.park, i);
      EXPECT_EQ(found[i].first_token, parks[i].record.summary.first_token);
      EXPECT_EQ(found[i].window_rows, parks[i].record.summary.window_rows);
      EXPECT_EQ(found[i].checkpoints, parks[i].record.summary.checkpoints);
      EXPECT_EQ(found[i].stages, parks[i].record.summary.stages);
      EXPECT_EQ(found[i].payload_bytes, parks[i].record.summary.payload_bytes);
      EXPECT_TRUE(found[i].parent.IsZero());
      EXPECT_EQ(*target_->ReadTokens(found[i].key), parks[i].record.tokens);
      tokens.insert(tokens.end(), parks[i].record.tokens.begin(), parks[i].record.tokens.end());
      hashes.insert(hashes.end(), found[i].page_hashes.begin(), found[i].page_hashes.end());
      EXPECT_EQ(*target_->ReadExtents(found[i].key), parks[i].record.extents);
      for (std::uint32_t extent = 0; extent < parks[i].payload.size(); ++extent) {
        const auto bytes = target_->ReadExtent(found[i].key, extent, MakeHeapBuffer);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        EXPECT_TRUE(ViewOf(*bytes) == ViewOf(parks[i].payload[extent]));
      }
    }
    std::vector<std::uint64_t> wanted;
    std::uint64_t hash = ChainSeed(target_->secret(), parks[0].record.summary.identity);
    for (std::size_t page = 0; (page + 1) * kPageTokens <= tokens.size(); ++page) {
      hash = ChainHash(hash, tokens.data() + page * kPageTokens);
      wanted.push_back(hash);
    }
    EXPECT_EQ(hashes, wanted);
  }
};

TEST_F(ImportTest, ARootArrivesWhole) {
  const std::vector<SamplePark> parks = PutChat(1);
  Name(*source_, 1, "my chat", 250);
  ASSERT_TRUE(Export(1).ok());
  const auto report = Import();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->id, Id(1));
  EXPECT_EQ(report->name, "my chat");
  EXPECT_EQ(report->tokens, 300u);
  EXPECT_EQ(report->parks, 4u);
  EXPECT_FALSE(report->there_already);
  EXPECT_TRUE(report->notices.empty());
  ExpectInTarget(Id(1), parks);
  const auto attributes = Attributes(*target_);
  ASSERT_EQ(attributes.size(), 1u);
  EXPECT_EQ(attributes[0].name, "my chat");
  EXPECT_EQ(attributes[0].name_tokens, 250u);
  EXPECT_TRUE(attributes[0].pinned);
  EXPECT_EQ(attributes[0].hits, 5u);
  EXPECT_EQ(attributes[0].last_used_unix_ms, kNow);
}

TEST_F(ImportTest, RowsInPartsArrive) {
  layout_ = MakeFakeLayout(1, 5u << 20, 0, 0, 1, 9u << 20);
  SampleParkSpec spec = Spec(1, 0, 0, 1);
  spec.stages = MakeFakeStages(layout_, {1});
  spec.checkpoints = {1};
  const std::vector<SamplePark> parks = {Put(spec)};
  ASSERT_TRUE(Export(1).ok());
  ASSERT_TRUE(Import().ok());
  ExpectInTarget(Id(1), parks);
}

TEST_F(ImportTest, ThereAlready) {
  const std::vector<SamplePark> parks = PutChat(1);
  ASSERT_TRUE(Export(1).ok());
  ASSERT_TRUE(Import().ok());
  auto again = Import();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->there_already);
  ExpectInTarget(Id(1), parks);
  // It may have gone on since.
  SampleParkSpec spec = Spec(1, 9, 300, 10);
  const SamplePark more = MakeSamplePark(spec);
  ASSERT_EQ(target_->Store(more.record, more.payload), absl::OkStatus());
  again = Import();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->there_already);
}

TEST_F(ImportTest, OtherTokensUnderTheSameId) {
  PutChat(1);
  ASSERT_TRUE(Export(1).ok());
  SampleParkSpec spec = Spec(1, 0, 0, 300);
  spec.variant = 1;
  const SamplePark other = MakeSamplePark(spec);
  const Digest128 identity = SampleIdentityDigest(layout_);
  ASSERT_EQ(target_->PutIdentity(identity, SampleIdentity(layout_)), absl::OkStatus());
  ASSERT_EQ(target_->Store(other.record, other.payload), absl::OkStatus());
  const auto report = Import();
  EXPECT_EQ(report.status(), absl::AlreadyExistsError(
                                 "conversation " + ToHex(Id(1)) +
                                 " is there already, with other tokens; parkade rm removes it"));
  EXPECT_EQ(Summaries(*target_).size(), 1u);
  // Shorter, but a beginning of it: not the same either.
  ASSERT_EQ(target_->Forget(Id(1), {{Id(1), 0}}), absl::OkStatus());
  const SamplePark shorter = MakeSamplePark(Spec(1, 0, 0, 100));
  ASSERT_EQ(target_->Store(shorter.record, shorter.payload), absl::OkStatus());
  EXPECT_TRUE(absl::IsAlreadyExists(Import().status()));
}

TEST_F(ImportTest, AForgottenOnesIdIsNotTaken) {
  const std::vector<SamplePark> parks = PutChat(1);
  ASSERT_TRUE(Export(1).ok());
  ASSERT_TRUE(Import().ok());
  Name(*target_, 1, "", 100, false);  // forgotten; forks stand on 100 tokens
  const auto report = Import();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NE(report->id, Id(1));
  ASSERT_EQ(report->notices.size(), 1u);
  ExpectInTarget(report->id, parks);
}

TEST_F(ImportTest, ANameIsNotTakenFromAnother) {
  PutChat(1);
  Name(*source_, 1, "work", 300);
  ASSERT_TRUE(Export(1).ok());
  Name(*target_, 8, "work", 10);
  const auto report = Import();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->name, "");
  EXPECT_EQ(report->notices, std::vector<std::string>{
                                 "another conversation has the name 'work'; imported without it"});
  for (const ConversationAttributes& attributes : Attributes(*target_)) {
    EXPECT_EQ(attributes.name, attributes.conversation == Id(8) ? "work" : "");
    EXPECT_EQ(attributes.name_tokens, attributes.conversation == Id(8) ? 10u : 0u);
    EXPECT_TRUE(attributes.pinned);
  }
}

TEST_F(ImportTest, AnotherLayoutOfTheIdentity) {
  PutChat(1);
  ASSERT_TRUE(Export(1).ok());
  StoredIdentity other = SampleIdentity(layout_);
  other.layout.window_tokens = 41;
  ASSERT_EQ(target_->PutIdentity(SampleIdentityDigest(layout_), other), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(Import().status()));
  ExpectEmptyTarget();
}

TEST_F(ImportTest, NoRoomLeavesNothing) {
  layout_ = MakeFakeLayout(1, 1u << 20, 0, 0, 0, 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    SampleParkSpec spec = Spec(1, i, 8 * i, 8);
    spec.stages = MakeFakeStages(layout_, {1});
    Put(spec);
  }
  ASSERT_TRUE(Export(1).ok());
  target_.reset();
  target_ = Open("target", 72u << 20);  // 32 MiB stay free, two parks of 16 MiB fit
  const auto report = Import();
  EXPECT_TRUE(absl::IsResourceExhausted(report.status())) << report.status();
  EXPECT_NE(report.status().message().find("; nothing was imported"), std::string::npos);
  EXPECT_EQ(target_->calls(TierCall::kStore), 3u);
  ExpectEmptyTarget();
  target_.reset();
  target_ = Open("target");
  ASSERT_TRUE(Import().ok());
}

TEST_F(ImportTest, AFailureAnywhereLeavesNothing) {
  PutChat(1);
  Name(*source_, 1, "x", 300);
  ASSERT_TRUE(Export(1).ok());
  for (const Fault& fault : {Failing(TierCall::kStore, 2), Failing(TierCall::kPutIdentity),
                             Failing(TierCall::kWriteAttributes), Failing(TierCall::kEnumerate),
                             Failing(TierCall::kEnumerateAttributes)}) {
    target_->AddFault(fault);
    const absl::Status status = Import().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << static_cast<int>(fault.call) << status;
    target_->ClearFaults();
    ExpectEmptyTarget();
  }
  int calls = 0;
  const auto stopped = Import([&calls](std::uint64_t, std::uint64_t) {
    return ++calls < 3 ? absl::OkStatus() : absl::CancelledError("stopped");
  });
  EXPECT_EQ(stopped.status(), absl::CancelledError("stopped; nothing was imported"));
  ExpectEmptyTarget();
}

TEST_F(ImportTest, AFileThatChangesAfterTheCheckLeavesNothing) {
  PutChat(1);
  ASSERT_TRUE(Export(1).ok());
  std::string bytes = Bytes();
  int calls = 0;
  const auto report = Import([&](std::uint64_t done, std::uint64_t) {
    if (++calls != 2) return absl::OkStatus();
    bytes[bytes.size() - 200] = static_cast<char>(bytes[bytes.size() - 200] ^ 1);
    Write(bytes);
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsDataLoss(report.status())) << report.status();
  ExpectEmptyTarget();
}

// ---- files that are not as they were written ----

class DamageTest : public TransferTest {
 protected:
  DamageTest() {
    std::filesystem::create_directories(root_ + "/files");
    Write(SampleContainer());
  }
};

TEST_F(DamageTest, TheSampleIsSound) {
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  std::uint64_t payload = 0;
  for (const SampleContainerPark& park : ContainerParks()) {
    payload += park.record.summary.payload_bytes;
  }
  EXPECT_EQ(checked->payload_bytes, payload);
}

TEST_F(DamageTest, EveryByteCounts) {
  const std::string sound = Bytes();
  for (std::size_t at = 0; at < sound.size(); ++at) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    Write(damaged);
    const absl::Status status = Check().status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << at << ": " << status;
    const std::string place = File() + ": at byte ";
    EXPECT_EQ(std::string(status.message()).rfind(place, 0), 0u) << status;
  }
}

TEST_F(DamageTest, DamageIsToldWhereItIs) {
  const std::string sound = Bytes();
  const std::size_t extent = sound.find("PKEX");
  for (const auto& [at, where] : std::vector<std::pair<std::size_t, std::size_t>>{
           {100, 64},                      // the opening
           {extent + 30, extent},          // an extent's header
           {extent + 70, extent + 64},     // its bytes, of which there are 24
           {extent + 90, extent + 88}}) {  // what is between it and the next one
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    Write(damaged);
    const std::string wanted = File() + ": at byte " + std::to_string(where) + ": ";
    EXPECT_EQ(std::string(Check().status().message()).rfind(wanted, 0), 0u) << Check().status();
  }
}

TEST_F(DamageTest, EveryLengthCounts) {
  const std::string sound = Bytes();
  for (std::size_t size = 0; size < sound.size(); ++size) {
    Write(sound.substr(0, size));
    EXPECT_TRUE(absl::IsDataLoss(Check().status())) << size;
  }
  for (const std::size_t more : {1, 64, 1000}) {
    Write(sound + std::string(more, '\0'));
    EXPECT_TRUE(absl::IsDataLoss(Check().status())) << more;
  }
  // A trailer of its own does not make a part a whole.
  for (std::size_t size = 64; size < sound.size(); size += 64) {
    std::string part = sound.substr(0, size);
    part += EncodeContainerTrailer({3, 7, size + kContainerTrailerBytes, Checksum(part)});
    Write(part);
    EXPECT_EQ(Check().ok(), size == sound.size() - 64) << size << ": " << Check().status();
  }
}

TEST_F(DamageTest, ALaterVersionIsSaid) {
  std::string later = Bytes();
  later[8] = 3;
  const std::uint64_t sum = Checksum64(std::string_view(later).substr(0, 56));
  for (int i = 0; i < 8; ++i) later[56 + i] = static_cast<char>(sum >> (8 * i));
  Write(later);
  EXPECT_EQ(Check().status(),
            absl::FailedPreconditionError(
                File() + ": at byte 0: written by a newer program: version 3, this one knows 2"));
}

class SealedTest : public ImportTest {
 protected:
  static SharedSealKey KeyOf(char byte) { return *SealKey::Parse(std::string(32, byte)); }
  absl::Status ExportWith(const SharedSealKey& key) {
    std::filesystem::create_directories(root_ + "/files");
    return ExportConversation(*source_, {ToHex(Id(1)), File(), true, key}, nullptr).status();
  }
  absl::StatusOr<ImportReport> ImportWith(const SharedSealKey& key) {
    absl::StatusOr<ContainerFile> file = ContainerFile::Open(File(), key);
    if (!file.ok()) return file.status();
    const absl::StatusOr<CheckedContainer> checked = CheckContainer(*file, nullptr);
    if (!checked.ok()) return checked.status();
    return ImportConversation(*target_, *file, *checked, kNow, nullptr);
  }
};

TEST_F(SealedTest, ArrivesWholeAndShowsNothingOnTheWay) {
  const std::vector<SamplePark> parks = PutChat(1);
  Name(*source_, 1, "a name nobody should read", 250);
  const std::string_view payload = ViewOf(parks[0].payload[0]).substr(100, 64);
  ASSERT_EQ(ExportWith(nullptr), absl::OkStatus());
  EXPECT_NE(Bytes().find("nobody should read"), std::string::npos);
  EXPECT_NE(Bytes().find(payload), std::string::npos);
  ASSERT_EQ(ExportWith(KeyOf('k')), absl::OkStatus());
  EXPECT_EQ(Bytes().find("nobody should read"), std::string::npos);
  EXPECT_EQ(Bytes().find(payload), std::string::npos);
  const auto report = ImportWith(KeyOf('k'));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->name, "a name nobody should read");
  ExpectInTarget(Id(1), parks);
}

TEST_F(SealedTest, NeedsItsKey) {
  PutChat(1);
  ASSERT_EQ(ExportWith(KeyOf('k')), absl::OkStatus());
  EXPECT_EQ(ImportWith(nullptr).status(),
            absl::FailedPreconditionError(File() + " is encrypted; give its key file"));
  const absl::Status other = ImportWith(KeyOf('x')).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.message().find(ToHex(KeyOf('k')->id())), absl::string_view::npos) << other;
  EXPECT_TRUE(Attributes(*target_).empty());
}

TEST_F(SealedTest, APlainFileIsReadWhateverTheKey) {
  const std::vector<SamplePark> parks = PutChat(1);
  ASSERT_EQ(ExportWith(nullptr), absl::OkStatus());
  ASSERT_TRUE(ImportWith(KeyOf('k')).ok());
  ExpectInTarget(Id(1), parks);
}

TEST_F(SealedTest, NoChangedByteIsBelieved) {
  PutChat(1);
  ASSERT_EQ(ExportWith(KeyOf('k')), absl::OkStatus());
  const std::string sound = Bytes();
  for (std::size_t at = 0; at < sound.size(); at += at < 1024 ? 1 : 97) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(File(), std::ios::binary) << damaged;
    EXPECT_FALSE(ImportWith(KeyOf('k')).ok()) << at;
  }
  EXPECT_TRUE(Attributes(*target_).empty());
}

TEST_F(DamageTest, WhatIsNoFile) {
  EXPECT_TRUE(absl::IsNotFound(ContainerFile::Open(root_ + "/nothing").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ContainerFile::Open(root_).status()));
  const std::string link = root_ + "/link";
  std::filesystem::create_symlink(File(), link);
  EXPECT_EQ(ContainerFile::Open(link).status(),
            absl::InvalidArgumentError(link + " is a symbolic link; name the file itself"));
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ContainerFile::Open(pipe).status(),
            absl::InvalidArgumentError(pipe + " is not a file"));
  EXPECT_EQ(ContainerFile::Open("/dev/zero").status(),
            absl::InvalidArgumentError("/dev/zero is not a file"));
}

}  // namespace
}  // namespace parkade::test
