#include <gtest/gtest.h>

#include "tiers/remote/breaker.h"

namespace parkade::remote {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(RemoteBreaker, OneFailureThatCostTimeOpensIt) {
  for (const absl::Status& failure :
       {absl::UnavailableError("gone"), absl::DeadlineExceededError("slow"),
        absl::PermissionDeniedError("no")}) {
    Breaker breaker;
    EXPECT_TRUE(breaker.closed());
    breaker.Note(failure, kStart);
    EXPECT_FALSE(breaker.closed());
    EXPECT_EQ(breaker.reason(), failure.message());
  }
}

TEST(RemoteBreaker, AnswersThatAreNoFailureKeepItClosed) {
  Breaker breaker;
  breaker.Note(absl::NotFoundError("nil"), kStart);
  breaker.Note(absl::DataLossError("damaged"), kStart);
  breaker.Note(absl::ResourceExhaustedError("full"), kStart);
  EXPECT_TRUE(breaker.closed());
  EXPECT_EQ(breaker.reason(), "");
}

TEST(RemoteBreaker, ProbesEverMoreSeldomUntilOneIsAnswered) {
  Breaker breaker;
  EXPECT_FALSE(breaker.ProbeDue(kStart));
  breaker.Note(absl::UnavailableError("gone"), kStart);
  absl::Time now = kStart;
  for (const int seconds : {1, 2, 4, 8, 16, 30, 30}) {
    EXPECT_FALSE(breaker.ProbeDue(now + absl::Seconds(seconds) - absl::Milliseconds(1)));
    now += absl::Seconds(seconds);
    EXPECT_TRUE(breaker.ProbeDue(now)) << seconds;
    // Only one probes.
    EXPECT_FALSE(breaker.ProbeDue(now));
    breaker.Probed(absl::DeadlineExceededError("slow"));
    EXPECT_EQ(breaker.reason(), "slow");
  }
  breaker.Probed(absl::OkStatus());
  EXPECT_TRUE(breaker.closed());
  breaker.Trust();
  breaker.Note(absl::UnavailableError("gone"), now);
  EXPECT_TRUE(breaker.ProbeDue(now + absl::Seconds(1)));
}

// It answers probes, and no lookup in time: each one that is let through costs a wait.
TEST(RemoteBreaker, GrowsPatientWithAStoreThatOnlyAnswersProbes) {
  Breaker breaker;
  absl::Time now = kStart;
  for (const int seconds : {1, 2, 4, 8, 16, 30, 30}) {
    breaker.Note(absl::DeadlineExceededError("slow"), now);
    // What was under way then is no proof of anything.
    breaker.Note(absl::OkStatus(), now);
    breaker.Trust();
    EXPECT_FALSE(breaker.closed());
    EXPECT_FALSE(breaker.ProbeDue(now + absl::Seconds(seconds) - absl::Milliseconds(1)));
    now += absl::Seconds(seconds);
    EXPECT_TRUE(breaker.ProbeDue(now)) << seconds;
    breaker.Probed(absl::OkStatus());
    EXPECT_TRUE(breaker.closed());
  }
}

}  // namespace
}  // namespace parkade::remote
