#include "src/server/changed_stamp.h"

#include <string>

#include "gtest/gtest.h"

namespace parkade {
namespace {

std::string Change(const std::string& before, const std::string& stored,
                   const std::string& wanted) {
  return std::string(ChangedStampName(ClassifyChange(before, stored, wanted)));
}

TEST(ChangedStamp, Dates) {
  EXPECT_EQ(Change("Today is 2026-11-", "29. Be brief", "30. Be brief"), "date");
  EXPECT_EQ(Change("Current date: ", "2026-11-30\n", "2027-01-01\n"), "date");
  EXPECT_EQ(Change("on 30/", "11/2026", "12/2026"), "date");
  EXPECT_EQ(Change("on 30.", "11.2026. You", "12.2026. You"), "date");
  EXPECT_EQ(Change("The current date is ", "Monday, November 30, 2026.\nYou",
                   "Tuesday, December 1, 2026.\nYou"),
            "date");
  EXPECT_EQ(Change("Today Date: ", "29 Nov 2026\n", "30 Nov 2026\n"), "date");
  EXPECT_EQ(Change("It is November ", "3rd, 2026", "4th, 2026"), "date");
  EXPECT_EQ(Change("It is May ", "3 and", "4 and"), "date");
}

TEST(ChangedStamp, Times) {
  EXPECT_EQ(Change("It is 12:3", "4 now", "5 now"), "time");
  EXPECT_EQ(Change("Time: ", "09:41:07 UTC", "10:00:00 UTC"), "time");
  EXPECT_EQ(Change("2026-11-30T12:", "34:56.123Z", "34:57.001Z"), "time");
  EXPECT_EQ(Change("at 11:59 ", "am.", "pm."), "time");
  EXPECT_EQ(Change("now=17", "96000000 go", "96000021 go"), "time");
  EXPECT_EQ(Change("[1796000000", "123] x", "999] x"), "time");
  // The date stands before the time and differs first.
  EXPECT_EQ(Change("2026-11-", "29T23:59:58Z", "30T00:00:01Z"), "date");
}

TEST(ChangedStamp, Ids) {
  EXPECT_EQ(Change("id ", "123e4567-e89b-12d3-a456-426614174000\n",
                   "9b2f0c1d-0000-4d3c-8a56-0123456789ab\n"),
            "uuid");
  EXPECT_EQ(
      Change("id 123e4567-", "e89b-12d3-a456-426614174000\n", "ffff-12d3-a456-426614174000\n"),
      "uuid");
  EXPECT_EQ(Change("Request ", "chatcmpl-9aB3xYz81Qq0\n", "chatcmpl-8zz1Kq02mmA9\n"), "random");
  EXPECT_EQ(Change("x-anthropic-billing-header: cc_version=2.1.3; cch=", "a1b2c;\nYou are",
                   "0fe91;\nYou are"),
            "random");
  EXPECT_EQ(Change("nonce: ", "8f14", "77ab"), "random");
  EXPECT_EQ(Change("commit ", "8f14e45fce", "c9f0f895fb"), "random");
}

TEST(ChangedStamp, Counters) {
  EXPECT_EQ(Change("You have ", "193,412 tokens left.", "187,001 tokens left."), "counter");
  EXPECT_EQ(Change("Token usage: ", "1200/200000", "3400/200000"), "counter");
  EXPECT_EQ(Change("This is turn ", "7 of", "8 of"), "counter");
}

TEST(ChangedStamp, WhatPeopleWriteIsNone) {
  EXPECT_EQ(Change("What is ", "3 plus 4?", "5 plus 4?"), "");
  EXPECT_EQ(Change("You may have ", "3 apples", "4 apples"), "");
  EXPECT_EQ(Change("Tell me of ", "whales", "horses"), "");
  EXPECT_EQ(Change("", "", ""), "");
  EXPECT_EQ(Change("same", "", "x"), "");
  EXPECT_EQ(Change("a", "b", ""), "");
  // One side alone is no stamp.
  EXPECT_EQ(Change("It is ", "12:34 now", "late now"), "");
  // Far from the difference nothing counts.
  EXPECT_EQ(Change("Today is 2026-11-30.\n\n" + std::string(100, ' ') + "Tell me of ", "whales",
                   "horses"),
            "");
  EXPECT_EQ(Change("int f", "oo_bar_baz = 1", "rob_nicate = 1"), "");
}

TEST(ChangedStamp, LooksAtItsWindowOnly) {
  const std::string far = std::string(1 << 20, '7');
  EXPECT_EQ(Change(far + " at 12:3", "4" + std::string(1 << 20, ' '), "5"), "time");
}

TEST(ChangedStamp, EveryNameHasWords) {
  for (const auto stamp : {ChangedStamp::kDate, ChangedStamp::kTime, ChangedStamp::kUuid,
                           ChangedStamp::kRandom, ChangedStamp::kCounter}) {
    EXPECT_NE(ChangedStampWords(ChangedStampName(stamp)), "");
  }
  EXPECT_EQ(ChangedStampWords(""), "");
}

}  // namespace
}  // namespace parkade
