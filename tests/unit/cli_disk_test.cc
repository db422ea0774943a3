// The commands on a directory, as main runs them.
#include <signal.h>
#include <unistd.h>

#include "src/cli/commands.h"
#include "src/cli/disk_access.h"
#include "src/cli/progress.h"
#include "src/cli/transfer.h"
#include "tests/unit/cli_transfer_fixture.h"

namespace parkade::test {
namespace {

class DiskCommandsTest : public TransferTest {
 protected:
  DiskCommandsTest() {
    arguments_.disk = root_ + "/source";
    arguments_.file = File();
    arguments_.id_or_name = ToHex(Id(1));
    arguments_.disk_min_free_mib = 0;
    std::filesystem::create_directories(root_ + "/files");
  }

  CliOutcome Ask(CliCommand command) {
    arguments_.command = command;
    arguments_.ids = {ToHex(Id(1))};
    const absl::StatusOr<HttpCall> call = OpenDiskApi(arguments_.disk);
    if (!call.ok()) return {1, "", std::string(call.status().message())};
    return RunCacheCommand(arguments_, *call, {1'800'000'000, 0});
  }

  CliArguments arguments_;
};

TEST_F(DiskCommandsTest, OneLineForPeople) {
  PutChat(1);
  Name(*source_, 1, "my\tchat", 300);
  source_.reset();
  target_.reset();
  const std::string id = ToHex(Id(1));
  CliOutcome outcome = RunExport(arguments_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.rfind("exported " + id + ": 300 tokens in 2 stages, ", 0), 0u)
      << outcome.out;
  // A name with a tab is no name that a server would have given: it stays behind.
  arguments_.disk = root_ + "/target";
  outcome = RunImport(arguments_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.rfind("imported " + id + ": 300 tokens, ", 0), 0u) << outcome.out;
  EXPECT_EQ(RunImport(arguments_).out, id + " is there already\n");
}

TEST_F(DiskCommandsTest, JsonForPrograms) {
  PutChat(1);
  Name(*source_, 1, "chat", 300);
  Name(*target_, 5, "chat", 10);
  source_.reset();
  target_.reset();
  arguments_.json = true;
  CliOutcome outcome = RunExport(arguments_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  for (const char* field : {"\"name\": \"chat\"", "\"tokens\": 300", "\"parks\": 4",
                            "\"stages\": 2", "\"file_bytes\": "}) {
    EXPECT_NE(outcome.out.find(field), std::string::npos) << outcome.out;
  }
  arguments_.disk = root_ + "/target";
  outcome = RunImport(arguments_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  for (const char* field : {"\"name\": null", "\"tokens\": 300", "\"there_already\": false",
                            "another conversation has the name 'chat'; imported without it"}) {
    EXPECT_NE(outcome.out.find(field), std::string::npos) << outcome.out;
  }
}

TEST_F(DiskCommandsTest, ABadFileMakesNoDirectory) {
  Write("not a container at all, but longer than sixty-four bytes, as it happens to be");
  arguments_.disk = root_ + "/fresh";
  const CliOutcome outcome = RunImport(arguments_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error, File() + ": at byte 0: no header of a container");
  EXPECT_FALSE(std::filesystem::exists(arguments_.disk));
}

TEST_F(DiskCommandsTest, AHeldDirectoryIsSaidAtOnce) {
  PutChat(1);
  const std::string held = root_ + "/source is in use by another process (pid " +
                           std::to_string(getpid()) + "); end it, or give another directory";
  EXPECT_EQ(RunExport(arguments_).error, held);
  EXPECT_EQ(Ask(CliCommand::kList).error, held);
  ASSERT_TRUE(Export(1).ok());
  EXPECT_EQ(RunImport(arguments_).error, held);
}

TEST_F(DiskCommandsTest, NothingIsEvictedByLooking) {
  layout_ = MakeFakeLayout(1, 1u << 20, 0, 0, 0, 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    SampleParkSpec spec = Spec(1, i, 8 * i, 8);
    spec.stages = MakeFakeStages(layout_, {1});
    Put(spec);
  }
  source_.reset();
  arguments_.json = true;
  for (int i = 0; i < 2; ++i) {
    const CliOutcome outcome = Ask(CliCommand::kShow);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_NE(outcome.out.find("\"tokens\": 32,"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("\"bytes\": 67108864"), std::string::npos) << outcome.out;
  }
}

TEST_F(DiskCommandsTest, PinsAndForgetsLast) {
  PutChat(1);
  PutChat(2);
  source_.reset();
  EXPECT_EQ(Ask(CliCommand::kPin).out, ToHex(Id(1)) + " is pinned\n");
  source_ = Open("source");
  ASSERT_EQ(Attributes(*source_).size(), 1u);
  EXPECT_TRUE(Attributes(*source_)[0].pinned);
  source_.reset();
  EXPECT_EQ(Ask(CliCommand::kForget).out, ToHex(Id(1)) + " is forgotten\n");
  EXPECT_EQ(Ask(CliCommand::kShow).error, "no conversation " + ToHex(Id(1)));
  source_ = Open("source");
  for (const ParkSummary& summary : Summaries(*source_)) {
    EXPECT_EQ(summary.key.conversation, Id(2));
  }
}

TEST(StopOnSignal, TellsASignal) {
  {
    const StopOnSignal stop;
    EXPECT_EQ(stop.Check(), absl::OkStatus());
    raise(SIGTERM);
    EXPECT_TRUE(absl::IsCancelled(stop.Check()));
  }
  const StopOnSignal again;
  EXPECT_EQ(again.Check(), absl::OkStatus());
  raise(SIGINT);
  EXPECT_TRUE(absl::IsCancelled(again.Check()));
}

}  // namespace
}  // namespace parkade::test
