#include "gtest/gtest.h"
#include "src/server/lookup_line.h"

namespace parkade {
namespace {

void SetMiss(LookupRecord& record, MissReason reason, std::uint32_t tokens) {
  record.miss_tokens[static_cast<int>(reason)] = tokens;
}

TEST(LookupLine, Restored) {
  LookupRecord record;
  record.prompt_tokens = 4330;
  record.reused_tokens = 4224;
  record.outcome = LookupOutcome::kPartial;
  record.conversation = {1, 2};
  record.hit_tokens = {0, 4000, 224, 0};
  SetMiss(record, MissReason::kDiverged, 90);
  SetMiss(record, MissReason::kNew, 16);
  record.boundary_tokens = 4224;
  record.boundary_kind = BoundaryKind::kTurn;
  record.first_difference = 4230;
  record.lookup_seconds = 0.00042;
  record.restore_seconds = 0.0121;
  record.restored_bytes = 21233664;
  EXPECT_EQ(
      FormatLookupLine(record),
      "lookup: partial, 4224 of 4330 tokens reused (ram 4000, disk 224), computed 106 (new "
      "16, diverged 90), conversation 00000000000000010000000000000002, boundary 4224 (turn), "
      "differs at token 4230, lookup 0.4 ms, restore 12.1 ms (20.2 MiB)");
}

TEST(LookupLine, Missed) {
  LookupRecord record;
  record.prompt_tokens = 50;
  SetMiss(record, MissReason::kIdentity, 49);
  SetMiss(record, MissReason::kNew, 1);
  record.identity_field = "kv_type_k";
  record.detail = "parked with q8_0,\nasked for f16";
  EXPECT_EQ(FormatLookupLine(record),
            "lookup: miss, 0 of 50 tokens reused, computed 50 (new 1, identity 49), other "
            "kv_type_k, lookup 0.0 ms; parked with q8_0, asked for f16");
}

TEST(LookupLine, MainReasonIsTheLargestThatIsNotNew) {
  LookupRecord record;
  EXPECT_FALSE(MainMissReason(record).has_value());
  SetMiss(record, MissReason::kNew, 500);
  EXPECT_EQ(MainMissReason(record), MissReason::kNew);
  SetMiss(record, MissReason::kCold, 3);
  EXPECT_EQ(MainMissReason(record), MissReason::kCold);
  SetMiss(record, MissReason::kCorrupt, 4);
  EXPECT_EQ(MainMissReason(record), MissReason::kCorrupt);
  SetMiss(record, MissReason::kDisabled, 4);
  EXPECT_EQ(MainMissReason(record), MissReason::kCorrupt);
}

TEST(MissLine, NamesWhatDiffers) {
  LookupRecord record;
  record.prompt_tokens = 9310;
  record.matched_tokens = record.first_difference = record.reused_tokens = 412;
  SetMiss(record, MissReason::kNew, 1);
  SetMiss(record, MissReason::kDiverged, 8897);
  EXPECT_EQ(FormatMissLine(record),
            "miss: the prompt differs at token 412 of 9,310; 8,897 tokens computed");
  record.changed = "time";
  EXPECT_EQ(FormatMissLine(record),
            "miss: the prompt differs at token 412 of 9,310 (a clock time that changes in every "
            "request); 8,897 tokens read again");
}

TEST(MissLine, NamesFieldCheckpointAndTier) {
  LookupRecord record;
  record.prompt_tokens = 1234567;
  SetMiss(record, MissReason::kIdentity, 1234566);
  record.identity_field = "control_vectors";
  EXPECT_EQ(FormatMissLine(record),
            "miss: the same text is kept under another identity: 'control_vectors' differs; "
            "1,234,566 tokens read again");
  record.miss_tokens = {};
  record.prompt_tokens = 5000;
  record.matched_tokens = 4500;
  SetMiss(record, MissReason::kCheckpoint, 4200);
  EXPECT_EQ(FormatMissLine(record),
            "miss: the match ends at token 4,500 of 5,000, and no state is kept below it; 4,200 "
            "tokens read again");
  record.usable_tokens = 300;
  EXPECT_EQ(FormatMissLine(record),
            "miss: the match ends at token 4,500 of 5,000, and the nearest state kept below it is "
            "that of token 300; 4,200 tokens read again");
  record.miss_tokens = {};
  SetMiss(record, MissReason::kCorrupt, 4500);
  SetMiss(record, MissReason::kDiverged, 499);
  record.failed_tier = Source::kDisk;
  record.detail = "checksum\ndiffers";
  EXPECT_EQ(FormatMissLine(record),
            "miss: what the disk tier holds can't be used (checksum differs), token 4,500 of "
            "5,000; 4,999 tokens read again");
}

TEST(MissLine, OnlyWhereAReuseCouldBeExpected) {
  LookupRecord record;
  record.prompt_tokens = 5000;
  SetMiss(record, MissReason::kCold, 5000);
  EXPECT_FALSE(FormatMissLine(record).has_value());
  record.miss_tokens = {};
  SetMiss(record, MissReason::kNew, 5000);
  SetMiss(record, MissReason::kDiverged, 1000);
  EXPECT_FALSE(FormatMissLine(record).has_value());
  SetMiss(record, MissReason::kDiverged, 1001);
  EXPECT_TRUE(FormatMissLine(record).has_value());
  record.miss_tokens = {};
  SetMiss(record, MissReason::kDisabled, 5000);
  EXPECT_FALSE(FormatMissLine(record).has_value());
}

}  // namespace
}  // namespace parkade
