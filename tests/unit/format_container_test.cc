#include <gtest/gtest.h>

#include <functional>

#include "src/format/container.h"
#include "src/format/running_checksum.h"
#include "src/format/wire.h"
#include "tests/unit/format_container_samples.h"

namespace parkade {
namespace {

ContainerTrailer SampleTrailer() { return {3, 7, 4096, {1, 2}}; }

std::string TextOf(const absl::Status& status) {
  return std::string(absl::StatusCodeToString(status.code())) + ": " +
         std::string(status.message());
}

SegmentHead HeadOf(const std::string& bytes) {
  std::uint64_t needed = 0;
  const auto head = DecodeSegmentHead(bytes, &needed);
  EXPECT_TRUE(head.ok()) << head.status();
  return head.ok() ? *head : SegmentHead();
}

SegmentHead OpeningHead(const ConversationAttributes& attributes = ContainerAttributes()) {
  return HeadOf(EncodeContainerOpening(SampleContainerHeader(), ContainerIdentity(), attributes));
}

// A reading that is open; the trailer says how many parks and tokens there are.
ContainerReading Opened(std::uint32_t parks = 3, std::uint32_t tokens = 7) {
  ContainerReading reading(SampleContainerHeader(), {parks, tokens, 4096, {}});
  EXPECT_EQ(reading.Open(OpeningHead()), absl::OkStatus());
  return reading;
}

TEST(Container, HeaderAndTrailerRoundTrip) {
  const auto header = DecodeContainerHeader(EncodeContainerHeader(SampleContainerHeader()));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->conversation, SampleContainerHeader().conversation);
  EXPECT_EQ(header->identity, SampleContainerHeader().identity);
  const auto trailer = DecodeContainerTrailer(EncodeContainerTrailer(SampleTrailer()), 4096);
  ASSERT_TRUE(trailer.ok()) << trailer.status();
  EXPECT_EQ(trailer->parks, 3u);
  EXPECT_EQ(trailer->tokens, 7u);
  EXPECT_EQ(trailer->file_bytes, 4096u);
  EXPECT_EQ(trailer->checksum, (Digest128{1, 2}));
}

TEST(Container, EveryByteOfHeaderAndTrailerCounts) {
  const std::string header = EncodeContainerHeader(SampleContainerHeader());
  const std::string trailer = EncodeContainerTrailer(SampleTrailer());
  ASSERT_EQ(header.size(), kContainerHeaderBytes);
  ASSERT_EQ(trailer.size(), kContainerTrailerBytes);
  for (std::size_t i = 0; i < header.size(); ++i) {
    std::string damaged = header;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(DecodeContainerHeader(damaged).status())) << i;
    EXPECT_TRUE(absl::IsDataLoss(DecodeContainerHeader(header.substr(0, i)).status())) << i;
    damaged = trailer;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(DecodeContainerTrailer(damaged, 4096).status())) << i;
  }
  EXPECT_EQ(TextOf(DecodeContainerTrailer(trailer, 4095).status()),
            "DATA_LOSS: the file has 4095 bytes, it was written with 4096");
}

// Bytes 0 ... 55 with something changed, sealed again.
std::string Resealed(std::string frame, std::size_t at, char value) {
  frame[at] = value;
  const std::uint64_t sum = Checksum64(std::string_view(frame).substr(0, 56));
  for (int i = 0; i < 8; ++i) frame[56 + i] = static_cast<char>(sum >> (8 * i));
  return frame;
}

TEST(Container, LaterVersionIsNotDamage) {
  const std::string header = EncodeContainerHeader(SampleContainerHeader());
  EXPECT_EQ(TextOf(DecodeContainerHeader(Resealed(header, 8, 3)).status()),
            "FAILED_PRECONDITION: written by a newer program: version 3, this one knows 2");
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerHeader(Resealed(header, 8, 0)).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerHeader(Resealed(header, 12, 1)).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerHeader(Resealed(header, 48, 1)).status()));
  const std::string trailer = EncodeContainerTrailer(SampleTrailer());
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerTrailer(Resealed(trailer, 8, 0), 4096).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerTrailer(Resealed(trailer, 12, 0), 4096).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerTrailer(Resealed(trailer, 40, 1), 4096).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeContainerTrailer(Resealed(trailer, 55, 1), 4096).status()));
}

TEST(Container, OpeningRoundTrips) {
  ContainerReading reading(SampleContainerHeader(), SampleTrailer());
  ASSERT_EQ(reading.Open(OpeningHead()), absl::OkStatus());
  EXPECT_EQ(reading.identity().identity, ContainerIdentity().identity);
  EXPECT_EQ(reading.identity().layout, ContainerIdentity().layout);
  EXPECT_EQ(reading.attributes().name, "book-club");
  EXPECT_EQ(reading.attributes().name_tokens, 6u);
  EXPECT_EQ(reading.attributes().hits, 3u);
  EXPECT_TRUE(reading.attributes().pinned);
  EXPECT_EQ(reading.attributes().conversation, ContainerConversation());
}

TEST(Container, OpeningRules) {
  const auto opened = [](const SegmentHead& head) {
    ContainerReading reading(SampleContainerHeader(), SampleTrailer());
    return reading.Open(head);
  };
  SegmentHead head = OpeningHead();
  head.segment = 1;
  EXPECT_TRUE(absl::IsDataLoss(opened(head)));
  head = OpeningHead();
  head.payload_bytes = 64;
  EXPECT_TRUE(absl::IsDataLoss(opened(head)));
  head = OpeningHead();
  std::swap(head.rows[0], head.rows[1]);
  EXPECT_TRUE(absl::IsDataLoss(opened(head)));
  head = OpeningHead();
  head.rows.push_back(head.rows[0]);
  EXPECT_TRUE(absl::IsDataLoss(opened(head)));
  head = OpeningHead();
  StoredIdentity other = ContainerIdentity();
  other.identity.Set("rope", "other");
  head.rows[0].value = EncodeIdentity(other);
  EXPECT_EQ(TextOf(opened(head)), "DATA_LOSS: the identity is not the one that the header names");
  for (const auto& [name, tokens] : std::vector<std::pair<std::string, std::uint32_t>>{
           {"", 1}, {"x", 8}, {"a\nb", 1}, {"a\x7f", 1}, {std::string(256, 'x'), 1}}) {
    ConversationAttributes attributes = ContainerAttributes();
    attributes.name = name;
    attributes.name_tokens = tokens;
    EXPECT_TRUE(absl::IsDataLoss(opened(OpeningHead(attributes)))) << name;
  }
}

TEST(Container, ParksRoundTrip) {
  ContainerReading reading = Opened();
  for (const SampleContainerPark& sample : ContainerParks()) {
    const auto park = reading.Next(HeadOf(ParkSegmentBytes(sample)));
    ASSERT_TRUE(park.ok()) << park.status();
    EXPECT_EQ(park->record.summary, sample.record.summary);
    EXPECT_EQ(park->record.tokens, sample.record.tokens);
    EXPECT_EQ(park->record.extents, sample.record.extents);
  }
  EXPECT_EQ(reading.Close(), absl::OkStatus());
}

TEST(Container, PageHashesStayBehind) {
  SampleContainerPark sample = MakeContainerPark(0, 0, 130, {}, {});
  sample.record.summary.page_hashes = {11, 12};
  ContainerReading reading = Opened(1, 130);
  const auto park = reading.Next(HeadOf(ParkSegmentBytes(sample)));
  ASSERT_TRUE(park.ok()) << park.status();
  EXPECT_EQ(park->record.summary.page_hashes, (std::vector<std::uint64_t>{0, 0}));
}

// What a changed park gives when it is read as the second one, after a sound first one.
std::string SecondPark(const std::function<void(SampleContainerPark*)>& change) {
  std::vector<SampleContainerPark> parks = ContainerParks();
  change(&parks[1]);
  ContainerReading reading = Opened();
  EXPECT_TRUE(reading.Next(HeadOf(ParkSegmentBytes(parks[0]))).ok());
  const std::string bytes = ParkSegmentBytes(parks[1]);
  std::uint64_t needed = 0;
  const auto head = DecodeSegmentHead(bytes, &needed);
  if (!head.ok()) return bytes;  // why it could not be laid out
  return TextOf(reading.Next(*head).status());
}

TEST(Container, RulesBetweenParks) {
  using Park = SampleContainerPark;
  EXPECT_EQ(SecondPark([](Park*) {}), "OK: ");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.key.park = 2; }),
            "DATA_LOSS: a segment is not the park that belongs here");
  EXPECT_EQ(SecondPark([](Park* park) { ++park->record.summary.key.conversation.low; }),
            "DATA_LOSS: a segment is not the park that belongs here");
  EXPECT_EQ(SecondPark([](Park* park) { ++park->record.summary.identity.low; }),
            "DATA_LOSS: a park of another identity");
  EXPECT_EQ(SecondPark([](Park* park) {
              park->record.summary.parent = {1, 1};
            }),
            "DATA_LOSS: a park of a fork");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.parent_tokens = 1; }),
            "DATA_LOSS: a park of a fork");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.generation = 1; }),
            "DATA_LOSS: a park of a fork");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.first_token = 3; }),
            "DATA_LOSS: a park does not go on where the one before it ends");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.first_token = 5; }),
            "DATA_LOSS: a park does not go on where the one before it ends");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.token_count = 4; }),
            "DATA_LOSS: more tokens than the trailer says");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.token_count = 2; }),
            "DATA_LOSS: wrong number of tokens");
  EXPECT_EQ(SecondPark([](Park* park) {
              park->record.summary.window_rows = {{4, 8}};
            }),
            "DATA_LOSS: window rows after the end");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.checkpoints = {8}; }),
            "DATA_LOSS: a checkpoint after the end");
  EXPECT_EQ(SecondPark([](Park* park) { ++park->record.summary.payload_bytes; }),
            "DATA_LOSS: a park lacks extents");
  EXPECT_EQ(SecondPark([](Park* park) { park->extents[0].info.first = 5; }),
            "DATA_LOSS: an extent after the end");
  EXPECT_EQ(SecondPark([](Park* park) { park->extents[0].info.rows = 2; }),
            "DATA_LOSS: an extent does not fit the layout");
  EXPECT_EQ(SecondPark([](Park* park) { park->extents[0].info.stage = 1; }),
            "DATA_LOSS: an extent does not fit the layout");
  EXPECT_EQ(SecondPark([](Park* park) { park->extents[0].info.stage = 2; }),
            "extent 0 has no stage");
  EXPECT_EQ(SecondPark([](Park* park) { park->record.summary.stages.stages.pop_back(); }),
            "extent 1 has no stage");
}

TEST(Container, RulesWithinASegment) {
  const SegmentHead sound = HeadOf(ParkSegmentBytes(ContainerParks()[0]));
  const auto next = [](const SegmentHead& head) {
    ContainerReading reading = Opened();
    return TextOf(reading.Next(head).status());
  };
  EXPECT_EQ(next(sound), "OK: ");
  SegmentHead head = sound;
  std::swap(head.rows[2], head.rows[3]);
  EXPECT_EQ(next(head), "DATA_LOSS: an image row is not where it belongs");
  head = sound;
  head.rows.pop_back();
  EXPECT_EQ(next(head), "DATA_LOSS: image rows and stages disagree");
  head = sound;
  head.payload_bytes += 64;
  EXPECT_EQ(next(head), "DATA_LOSS: the payload has another size");
  head = sound;
  head.head_bytes += 64;
  EXPECT_EQ(next(head), "DATA_LOSS: an extent has another place");
  head = sound;
  head.segment = 2;
  EXPECT_EQ(next(head), "DATA_LOSS: a segment is not the park that belongs here");
  head = sound;
  head.rows[3].value = EncodeImage(9, {});
  EXPECT_EQ(next(head), "DATA_LOSS: an image row names another segment");
  ParkSummary hashed = MakeContainerPark(0, 0, 64, {}, {}).record.summary;
  hashed.page_hashes = {1};
  head = HeadOf(ParkSegmentBytes(MakeContainerPark(0, 0, 64, {}, {})));
  head.rows[0].value = EncodeManifest(hashed);
  ContainerReading reading = Opened(1, 64);
  EXPECT_EQ(TextOf(reading.Next(head).status()), "DATA_LOSS: page hashes are set");
}

TEST(Container, TheEnd) {
  ContainerReading reading = Opened(2, 7);
  ASSERT_TRUE(reading.Next(HeadOf(ParkSegmentBytes(ContainerParks()[0]))).ok());
  EXPECT_EQ(TextOf(reading.Close()), "DATA_LOSS: parks are missing");
  reading = Opened(1, 7);
  ASSERT_TRUE(reading.Next(HeadOf(ParkSegmentBytes(ContainerParks()[0]))).ok());
  EXPECT_EQ(TextOf(reading.Close()), "DATA_LOSS: tokens are missing");
  EXPECT_EQ(TextOf(reading.Next(HeadOf(ParkSegmentBytes(ContainerParks()[1]))).status()),
            "DATA_LOSS: a segment is not the park that belongs here");
}

TEST(RunningChecksum, IsThatOfTheWhole) {
  std::string bytes(100000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 3);
  for (const std::size_t step : {1u, 7u, 256u, 99999u, 100000u}) {
    RunningChecksum running;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      running.Add(std::string_view(bytes).substr(at, step));
    }
    EXPECT_EQ(running.Value(), Checksum(bytes)) << step;
  }
  EXPECT_EQ(RunningChecksum().Value(), Checksum({}));
}

}  // namespace
}  // namespace parkade
