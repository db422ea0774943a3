#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/server/flag_values.h"
#include "src/server/flags.h"

namespace parkade {
namespace {

constexpr char kDisk[] = "--conversation-cache-disk";

absl::StatusOr<ParsedFlags> Parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"parkade-server"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseFlags(static_cast<int>(argv.size()), argv.data());
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ParsedFlags> flags = Parse(arguments);
  if (flags.ok()) return "OK";
  EXPECT_EQ(flags.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(flags.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    char name[] = "/tmp/parkade_flags_XXXXXX";
    const int descriptor = mkstemp(name);
    EXPECT_GE(descriptor, 0);
    close(descriptor);
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }

  const std::string& path() const { return path_; }
  absl::StatusOr<ParsedFlags> Parsed() const {
    return Parse({"--conversation-cache-config", path_});
  }
  std::string Error() const { return ErrorOf({"--conversation-cache-config", path_}); }

 private:
  std::string path_;
};

TEST(Flags, DefaultsAreThoseOfTheOptions) {
  const auto flags = Parse({});
  ASSERT_TRUE(flags.ok());
  const CacheOptions defaults;
  EXPECT_EQ(flags->cache.ram_budget_bytes, 8192ull << 20);
  EXPECT_EQ(flags->cache.ram_slots, 0u);
  EXPECT_EQ(flags->cache.ram_min_free_bytes, 2560ull << 20);
  EXPECT_EQ(flags->cache.min_tokens, 64u);
  EXPECT_EQ(flags->cache.ram_budget_bytes, defaults.ram_budget_bytes);
  EXPECT_EQ(flags->disk.directory, "");
  EXPECT_EQ(flags->disk.budget_bytes, 0u);
  EXPECT_EQ(flags->disk.min_free_bytes, 4096ull << 20);
  EXPECT_EQ(flags->disk.codec, CodecChoice::kAuto);
  EXPECT_EQ(flags->disk.key_file, "");
  EXPECT_FALSE(flags->any_given);
  EXPECT_FALSE(flags->help_wanted);
  EXPECT_TRUE(flags->notices.empty());
  EXPECT_EQ(flags->rest, std::vector<std::string>{"parkade-server"});
}

TEST(Flags, EveryFlagReachesItsOption) {
  const auto flags =
      Parse({"--conversation-cache-mib", "100", "--conversation-cache-slots=7",
             "--conversation-cache-min-free-mib", "11", "--conversation-cache-disk", "/var/x y",
             "--conversation-cache-disk-gib", "0.5", "--conversation-cache-disk-min-free-mib", "12",
             "--conversation-cache-min-tokens", "128", "--conversation-cache-codec=zstd"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->cache.ram_budget_bytes, 100ull << 20);
  EXPECT_EQ(flags->cache.ram_slots, 7u);
  EXPECT_EQ(flags->cache.ram_min_free_bytes, 11ull << 20);
  EXPECT_EQ(flags->disk.directory, "/var/x y");
  EXPECT_EQ(flags->disk.budget_bytes, 512ull << 20);
  EXPECT_EQ(flags->disk.min_free_bytes, 12ull << 20);
  EXPECT_EQ(flags->cache.min_tokens, 128u);
  EXPECT_EQ(flags->disk.codec, CodecChoice::kZstd);
  EXPECT_TRUE(flags->any_given);
  EXPECT_TRUE(flags->notices.empty());
}

TEST(Flags, TheRestIsLeftInOrder) {
  const auto flags = Parse({"-m", "model.gguf", "--conversation_cache_mib", "5", "--port", "80",
                            "--conversation-cache-disk=a=b", "-h"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const std::vector<std::string> rest = {"parkade-server", "-m", "model.gguf",
                                         "--port",         "80", "-h"};
  EXPECT_EQ(flags->rest, rest);
  EXPECT_EQ(flags->disk.directory, "a=b");
  EXPECT_EQ(flags->cache.ram_budget_bytes, 5ull << 20);
  EXPECT_TRUE(flags->help_wanted);
}

TEST(Flags, WithADiskTierTheRamDefaultIsSmaller) {
  EXPECT_EQ(Parse({"--conversation-cache-disk", "d"})->cache.ram_budget_bytes, 1024ull << 20);
  EXPECT_EQ(Parse({"--conversation-cache-disk", "off"})->cache.ram_budget_bytes, 8192ull << 20);
  EXPECT_EQ(Parse({"--conversation-cache-disk", "d", "--conversation-cache-mib", "8192"})
                ->cache.ram_budget_bytes,
            8192ull << 20);
}

TEST(Flags, TheLastOneOnTheCommandLineWins) {
  const auto flags = Parse({"--conversation-cache-mib", "5", "--conversation-cache-mib=6"});
  EXPECT_EQ(flags->cache.ram_budget_bytes, 6ull << 20);
}

TEST(Flags, CacheRamIsReadAsOurs) {
  for (const char* name : {"--cache-ram", "-cram", "--cache_ram"}) {
    const auto flags = Parse({name, "300"});
    ASSERT_TRUE(flags.ok()) << flags.status();
    EXPECT_EQ(flags->cache.ram_budget_bytes, 300ull << 20) << name;
    EXPECT_EQ(flags->rest.size(), 1u);
    EXPECT_FALSE(flags->any_given);
    ASSERT_EQ(flags->notices.size(), 1u);
    EXPECT_EQ(flags->notices[0], "--cache-ram 300 is read as --conversation-cache-mib 300");
  }
  EXPECT_EQ(Parse({"--cache-ram=0"})->cache.ram_budget_bytes, 0u);
  EXPECT_EQ(Parse({"--cache-ram", "300", "--conversation-cache-disk", "d"})->cache.ram_budget_bytes,
            300ull << 20);
}

TEST(Flags, CacheRamMinusOneLeavesOnlyTheFloor) {
  const auto flags = Parse({"-cram", "-1", "--conversation-cache-min-free-mib", "77"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->cache.ram_budget_bytes, 1ull << 50);
  ASSERT_EQ(flags->notices.size(), 1u);
  EXPECT_EQ(flags->notices[0],
            "--cache-ram -1: the conversation cache is limited only by the 77 MiB of memory it "
            "leaves free");
}

TEST(Flags, OursWinsOverCacheRam) {
  const ConfigFile file("conversation-cache-mib = 20\n");
  for (const std::vector<std::string>& ours :
       {std::vector<std::string>{"--conversation-cache-mib", "20"},
        std::vector<std::string>{"--conversation-cache-config", file.path()}}) {
    std::vector<std::string> arguments = {"--cache-ram", "10"};
    arguments.insert(arguments.end(), ours.begin(), ours.end());
    const auto flags = Parse(arguments);
    ASSERT_TRUE(flags.ok()) << flags.status();
    EXPECT_EQ(flags->cache.ram_budget_bytes, 20ull << 20);
    ASSERT_EQ(flags->notices.size(), 1u);
    EXPECT_EQ(flags->notices[0],
              "--cache-ram 10 has no effect: --conversation-cache-mib 20 is given");
  }
}

TEST(Flags, WhatHasNoEffectIsSaid) {
  const auto flags = Parse({"--conversation-cache-codec", "lz4"});
  ASSERT_TRUE(flags.ok());
  ASSERT_EQ(flags->notices.size(), 1u);
  EXPECT_EQ(flags->notices[0],
            "--conversation-cache-codec has no effect without --conversation-cache-disk or "
            "--conversation-cache-remote");
}

TEST(Flags, ADiskTiersSizeNeedsADiskTier) {
  EXPECT_EQ(ErrorOf({"--conversation-cache-disk-gib", "4"}),
            "--conversation-cache-disk-gib: there is no disk tier; name its directory with "
            "--conversation-cache-disk PATH");
  EXPECT_EQ(ErrorOf({"--conversation-cache-disk-min-free-mib", "4"}),
            "--conversation-cache-disk-min-free-mib: there is no disk tier; name its directory "
            "with --conversation-cache-disk PATH");
  const ConfigFile file("conversation-cache-disk-gib = 4\n");
  EXPECT_EQ(file.Error(),
            "--conversation-cache-disk-gib: there is no disk tier; name its directory with "
            "--conversation-cache-disk PATH");
  const auto named =
      Parse({"--conversation-cache-config", file.path(), "--conversation-cache-disk", "d"});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->disk.budget_bytes, 4ull << 30);
  // Switched off on purpose: the rest of the file stays as it is.
  const auto off =
      Parse({"--conversation-cache-config", file.path(), "--conversation-cache-disk", "off"});
  ASSERT_TRUE(off.ok()) << off.status();
  ASSERT_EQ(off->notices.size(), 1u);
  EXPECT_EQ(off->notices[0],
            "--conversation-cache-disk-gib has no effect without --conversation-cache-disk");
}

TEST(Flags, WrongValuesAreOneClearLine) {
  EXPECT_EQ(ErrorOf({"--conversation-cache-mib", "12x"}),
            "--conversation-cache-mib: '12x' is not a whole number of MiB from 0 to 1073741824");
  for (const char* value : {"", " 1", "1 ", "+1", "-1", "0x10", "1.5", "1073741825",
                            "18446744073709551616", "99999999999999999999999999"}) {
    EXPECT_EQ(ErrorOf({"--conversation-cache-mib", value}),
              std::string("--conversation-cache-mib: '") + value +
                  "' is not a whole number of MiB from 0 to 1073741824");
  }
  EXPECT_EQ(
      ErrorOf({"--conversation-cache-slots", "1000001"}),
      "--conversation-cache-slots: '1000001' is not a whole number of conversations from 0 to "
      "1000000");
  for (const char* value :
       {"0", "0.09", "-1", "inf", "nan", "1e3", "1048577", "4GiB", "", ".", "9e999"}) {
    EXPECT_EQ(ErrorOf({"--conversation-cache-disk-gib", value}),
              std::string("--conversation-cache-disk-gib: '") + value +
                  "' is not 'auto' or a number of GiB from 0.1 to 1048576");
  }
  EXPECT_EQ(ErrorOf({"--conversation-cache-codec", "LZ4"}),
            "--conversation-cache-codec: 'LZ4' is not one of auto, none, lz4, zstd");
  EXPECT_EQ(ErrorOf({"--conversation-cache-disk", ""}), "--conversation-cache-disk: needs a path");
  EXPECT_EQ(ErrorOf({"--conversation-cache-disk=~/x"}),
            "--conversation-cache-disk: nothing expands the ~ in '~/x'; write the whole path");
  EXPECT_EQ(ErrorOf({"--cache-ram", "-2"}),
            "--cache-ram: '-2' is not a whole number of MiB from -1 to 1073741824");
  EXPECT_EQ(ErrorOf({"--cache-ram", "a\nb"}),
            "--cache-ram: 'a?b' is not a whole number of MiB from -1 to 1073741824");
}

TEST(Flags, BoundsAreInside) {
  EXPECT_EQ(Parse({"--conversation-cache-mib", "1073741824"})->cache.ram_budget_bytes, 1ull << 50);
  EXPECT_EQ(Parse({"--conversation-cache-disk-gib", "1048576", kDisk, "d"})->disk.budget_bytes,
            1ull << 50);
  EXPECT_EQ(Parse({"--conversation-cache-disk-gib", "0.1", kDisk, "d"})->disk.budget_bytes,
            107374183u);
  EXPECT_EQ(Parse({"--conversation-cache-disk-gib", "auto", kDisk, "d"})->disk.budget_bytes, 0u);
}

constexpr char kRemote[] = "--conversation-cache-remote";
constexpr char kAddress[] = "redis://u:s3cret@a:1,b:2/p";

TEST(RemoteFlags, ReachTheirOptions) {
  const auto flags = Parse({kRemote, kAddress, "--conversation-cache-remote-ttl-s=60",
                            "--conversation-cache-remote-deadline-ms", "1"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->remote.address, kAddress);
  EXPECT_EQ(flags->remote.ttl_s, 60);
  EXPECT_EQ(flags->remote.deadline_ms, 1);
  EXPECT_TRUE(flags->any_given);
  EXPECT_TRUE(flags->notices.empty());
  const auto off = Parse({kRemote, kAddress, kRemote, "off"});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_EQ(off->remote.address, "");
  EXPECT_EQ(off->remote.ttl_s, 604800);
  EXPECT_EQ(off->remote.deadline_ms, 500);
}

TEST(RemoteFlags, NeedATierOfThisMachine) {
  const std::string alone =
      "--conversation-cache-remote: needs a RAM or a disk tier beside it; give "
      "--conversation-cache-mib N or --conversation-cache-disk PATH";
  EXPECT_EQ(ErrorOf({kRemote, kAddress, "--conversation-cache-mib", "0"}), alone);
  EXPECT_EQ(ErrorOf({kRemote, kAddress, "--cache-ram", "0"}), alone);
  EXPECT_TRUE(Parse({kRemote, kAddress, "--conversation-cache-mib", "0", kDisk, "d"}).ok());
}

TEST(RemoteFlags, WrongValuesAreOneClearLineThatShowsNoPassword) {
  EXPECT_EQ(ErrorOf({"--conversation-cache-remote-ttl-s", "59"}),
            "--conversation-cache-remote-ttl-s: '59' is not a whole number of seconds from 60 to "
            "1073741824");
  EXPECT_EQ(ErrorOf({"--conversation-cache-remote-deadline-ms", "0"}),
            "--conversation-cache-remote-deadline-ms: '0' is not a whole number of ms from 1 to "
            "600000");
  EXPECT_EQ(ErrorOf({kRemote, ""}), "--conversation-cache-remote: needs an address");
  for (const char* address : {"redis://:s3cret @a", "redis://:s3cret\n@a", " redis://:s3cret@a"}) {
    EXPECT_EQ(ErrorOf({kRemote, address}),
              "--conversation-cache-remote: an address has no blanks or control characters");
  }
  const ConfigFile file("conversation-cache-remote = redis://:s3cret @a\n");
  EXPECT_EQ(file.Error().find("s3cret"), std::string::npos) << file.Error();
}

TEST(RemoteFlags, WithoutARemoteTierTheRestHasNoEffectAndThatIsSaid) {
  const auto flags = Parse(
      {"--conversation-cache-remote-ttl-s", "60", "--conversation-cache-remote-deadline-ms", "9"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->notices,
            (std::vector<std::string>{"--conversation-cache-remote-ttl-s has no effect without "
                                      "--conversation-cache-remote",
                                      "--conversation-cache-remote-deadline-ms has no effect "
                                      "without --conversation-cache-remote"}));
}

// A key encrypts what goes to a remote tier, too.
TEST(RemoteFlags, AKeyHasAnEffectWithoutADisk) {
  const auto flags = Parse({kRemote, kAddress, "--conversation-cache-key-file", "k"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_TRUE(flags->notices.empty());
  EXPECT_EQ(flags->disk.key_file, "k");
}

TEST(RemoteFlags, ReachTheServersOfARouter) {
  const std::string address = "redis://:pass%20word=#'\"@[::1]:1/p";
  const auto flags = Parse({kRemote, address, "--conversation-cache-remote-ttl-s", "61",
                            "--conversation-cache-remote-deadline-ms", "62"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const auto text = FlagsText(*flags);
  ASSERT_TRUE(text.ok()) << text.status();
  const char* const argv[] = {"parkade-server"};
  const auto child = ParseFlagsText(1, argv, *text, "options");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->remote.address, address);
  EXPECT_EQ(child->remote.ttl_s, 61);
  EXPECT_EQ(child->remote.deadline_ms, 62);
}

TEST(Flags, UnknownAndMissing) {
  EXPECT_EQ(ErrorOf({"--conversation-cache-size", "5"}),
            "--conversation-cache-size: unknown flag; 'parkade-server --help' lists the flags");
  EXPECT_EQ(ErrorOf({"--conversation-cache=5"}),
            "--conversation-cache: unknown flag; 'parkade-server --help' lists the flags");
  EXPECT_EQ(ErrorOf({"--conversation-cache-mib"}), "--conversation-cache-mib: needs a value");
  EXPECT_EQ(ErrorOf({"--conversation-cache-disk", "--port", "80"}),
            "--conversation-cache-disk: needs a value");
  EXPECT_EQ(ErrorOf({"--cache-ram"}), "--cache-ram: needs a value");
}

TEST(FlagFile, IsReadAndTheCommandLineWins) {
  const ConfigFile file(
      "# a comment\n"
      "\n"
      "   conversation-cache-mib=10\r\n"
      "conversation-cache-disk =\t/a b#c  \n"
      "conversation-cache-disk-gib = 2\n"
      "conversation-cache-codec = none");
  const auto flags =
      Parse({"--conversation-cache-config", file.path(), "--conversation-cache-disk-gib", "3"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->cache.ram_budget_bytes, 10ull << 20);
  EXPECT_EQ(flags->disk.directory, "/a b#c");
  EXPECT_EQ(flags->disk.budget_bytes, 3ull << 30);
  EXPECT_EQ(flags->disk.codec, CodecChoice::kNone);
  EXPECT_TRUE(flags->any_given);
}

TEST(FlagFile, CommandLineTurnsTheDiskOff) {
  const ConfigFile file("conversation-cache-disk = d\n");
  EXPECT_EQ(file.Parsed()->disk.directory, "d");
  const auto flags = Parse({"--conversation-cache-disk", "off",  //
                            "--conversation-cache-config", file.path()});
  EXPECT_EQ(flags->disk.directory, "");
  EXPECT_EQ(flags->cache.ram_budget_bytes, 8192ull << 20);
}

TEST(FlagFile, ErrorsNameFileAndLine) {
  const auto expect = [](const std::string& text, const std::string& error) {
    const ConfigFile file(text);
    EXPECT_EQ(file.Error(), file.path() + error);
  };
  expect("\n\nmib = 5\n",
         ":3: unknown key 'mib'; 'parkade-server --help' lists the keys (without the dashes)");
  expect("conversation-cache-config = x\n",
         ":1: unknown key 'conversation-cache-config'; 'parkade-server --help' lists the keys "
         "(without the dashes)");
  expect("--conversation-cache-mib = 5",
         ":1: write the key '--conversation-cache-mib' without the leading dashes");
  expect("# x\nconversation-cache-mib 5\n",
         ":2: expected 'key = value'; a comment begins with '#'");
  expect("conversation-cache-mib = 5\n\nconversation-cache-mib = 5\n",
         ":3: key 'conversation-cache-mib' was already set on line 1; remove one of the two");
  expect("conversation-cache-mib = 5 # five\n",
         ":1: conversation-cache-mib: '5 # five' is not a whole number of MiB from 0 to "
         "1073741824");
  expect("conversation-cache-mib =\n",
         ":1: conversation-cache-mib: '' is not a whole number of MiB from 0 to 1073741824");
  expect("conversation-cache-disk = ~\n",
         ":1: conversation-cache-disk: nothing expands the ~ in '~'; write the whole path");
  expect(std::string("conversation-cache-disk = a\0b\n", 30),
         ":1: conversation-cache-disk: a path has no NUL bytes");
}

TEST(FlagFile, WhatCannotBeReadIsSaid) {
  EXPECT_EQ(ErrorOf({"--conversation-cache-config", "/nonexistent/x"}),
            "--conversation-cache-config: can't read '/nonexistent/x'; name a file that exists");
  EXPECT_EQ(ErrorOf({"--conversation-cache-config", "/tmp"}),
            "--conversation-cache-config: '/tmp' is not a file");
  EXPECT_EQ(ErrorOf({"--conversation-cache-config", "/dev/zero"}),
            "--conversation-cache-config: '/dev/zero' is not a file");
  const ConfigFile pipe("");
  ASSERT_EQ(unlink(pipe.path().c_str()), 0);
  ASSERT_EQ(mkfifo(pipe.path().c_str(), 0600), 0);
  EXPECT_EQ(pipe.Error(), "--conversation-cache-config: '" + pipe.path() + "' is not a file");
  const ConfigFile large(std::string((1 << 20) + 1, '\n'));
  EXPECT_EQ(large.Error(), "--conversation-cache-config: '" + large.path() +
                               "' is larger than 1 MiB; not a configuration");
  const ConfigFile fits(std::string(1 << 20, '\n'));
  EXPECT_EQ(fits.Error(), "OK");
  EXPECT_EQ(ConfigFile("").Error(), "OK");
}

// The keys that stand in config/parkade.conf, commented out or not -> value.
std::vector<std::pair<std::string, std::string>> ExampleSettings() {
  std::vector<std::pair<std::string, std::string>> settings;
  std::ifstream file(PARKADE_EXAMPLE_CONFIG);
  for (std::string line; std::getline(file, line);) {
    EXPECT_TRUE(line.empty() || line[0] == '#') << "not commented out: " << line;
    if (line.rfind("#conversation-cache-", 0) != 0) continue;
    const std::size_t equals = line.find(" = ");
    EXPECT_NE(equals, std::string::npos) << line;
    settings.emplace_back(line.substr(1, equals - 1), line.substr(equals + 3));
  }
  return settings;
}

TEST(ExampleConfig, HasEveryKeyOnceAtItsDefault) {
  std::set<std::string> seen;
  std::string text;
  for (const auto& [key, value] : ExampleSettings()) {
    EXPECT_TRUE(seen.insert(key).second) << key << " stands twice";
    const FlagSpec* flag = FindFlag(key);
    ASSERT_NE(flag, nullptr) << key;
    EXPECT_TRUE(flag->in_file) << key;
    EXPECT_EQ(value, flag->default_text) << key;
    text += key + " = " + value + "\n";
  }
  for (const FlagSpec& flag : FlagTable()) {
    EXPECT_EQ(seen.count(std::string(flag.name)), flag.in_file ? 1u : 0u) << flag.name;
  }
  const ConfigFile uncommented(text);
  const auto given = uncommented.Parsed();
  ASSERT_TRUE(given.ok()) << given.status();
  const auto defaults = Parse({});
  EXPECT_EQ(given->cache.ram_budget_bytes, defaults->cache.ram_budget_bytes);
  EXPECT_EQ(given->cache.ram_slots, defaults->cache.ram_slots);
  EXPECT_EQ(given->cache.ram_min_free_bytes, defaults->cache.ram_min_free_bytes);
  EXPECT_EQ(given->cache.min_tokens, defaults->cache.min_tokens);
  EXPECT_EQ(given->disk.directory, defaults->disk.directory);
  EXPECT_EQ(given->disk.budget_bytes, defaults->disk.budget_bytes);
  EXPECT_EQ(given->disk.min_free_bytes, defaults->disk.min_free_bytes);
  EXPECT_EQ(given->disk.codec, defaults->disk.codec);
  EXPECT_EQ(given->disk.key_file, defaults->disk.key_file);
}

TEST(FlagTable, IsWellFormed) {
  std::set<std::string_view> names;
  for (const FlagSpec& flag : FlagTable()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_EQ(flag.name.substr(0, 19), "conversation-cache-");
    EXPECT_FALSE(flag.help.empty());
    EXPECT_LE(flag.least, flag.most);
    if (flag.default_text.empty()) continue;
    EXPECT_TRUE(ParseFlagValue(flag, flag.default_text, "default").ok()) << flag.name;
  }
  EXPECT_LE(names.size(), 25u);
}

TEST(FlagTable, HelpNamesEveryFlagAndItsDefault) {
  const std::string help = FlagsHelp();
  for (const FlagSpec& flag : FlagTable()) {
    const std::string head = "--" + std::string(flag.name) + " " + std::string(flag.value_name);
    EXPECT_NE(help.find(head), std::string::npos) << head;
  }
  EXPECT_NE(help.find("(default: 8192 MiB)"), std::string::npos) << help;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
  EXPECT_EQ(help.back(), '\n');
}

}  // namespace
}  // namespace parkade
