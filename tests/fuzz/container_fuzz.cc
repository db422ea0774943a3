// A container file, as `parkade import` reads it. Input: a byte of switches, then the file.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "src/cli/container_file.h"
#include "src/format/checksum.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/right_checksums.h"

namespace parkade::fuzz {
namespace {

constexpr std::uint8_t kLeaveChecksums = 0x80;
// One extent, and an LZ4 block of tokens.
constexpr std::size_t kSlackBytes = kExtentBytes + (64 << 10);
constexpr std::size_t kLz4Growth = 255;

// One park as it was read.
struct ReadPark {
  ParkRecord record;
  std::vector<std::string> payload;
  friend bool operator==(const ReadPark& a, const ReadPark& b) {
    return a.record.summary == b.record.summary && a.record.tokens == b.record.tokens &&
           a.record.extents == b.record.extents && a.payload == b.payload;
  }
};

// Files of this process, gone when it ends.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/parkade-fuzz-XXXXXX";
    FUZZ_CHECK(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() {
    for (const char* name : {"/input", "/again"}) ::unlink((path_ + name).c_str());
    ::rmdir(path_.c_str());
  }
  std::string File(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void Write(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  FUZZ_CHECK(fd >= 0);
  FUZZ_CHECK(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  ::close(fd);
}

absl::StatusOr<ContainerFile> Read(const std::string& path, std::vector<ReadPark>* parks) {
  absl::StatusOr<ContainerFile> file = ContainerFile::Open(path);
  if (!file.ok()) return file;
  const absl::Status walked = file->Walk(
      [&](const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
        FUZZ_CHECK(record.tokens.size() == record.summary.token_count);
        FUZZ_CHECK(payload.size() == record.extents.size());
        ReadPark park{record, {}};
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < payload.size(); ++i) {
          park.payload.emplace_back(payload[i]->data(), payload[i]->size());
          FUZZ_CHECK(payload[i]->size() == record.extents[i].raw_bytes);
          FUZZ_CHECK(Checksum(park.payload.back()) == record.extents[i].checksum);
          bytes += payload[i]->size();
        }
        FUZZ_CHECK(bytes == record.summary.payload_bytes && bytes <= kParkBytes);
        parks->push_back(std::move(park));
        return absl::OkStatus();
      },
      nullptr);
  if (!walked.ok()) return walked;
  FUZZ_CHECK(parks->size() == file->trailer().parks);
  return file;
}

// What was read can be written, and reads the same.
void WriteAgain(const std::string& path, const ContainerFile& file,
                const std::vector<ReadPark>& parks) {
  auto writer = ContainerWriter::Create(path, /*replace=*/true, nullptr);
  FUZZ_CHECK(writer.ok());
  FUZZ_CHECK((*writer)->Begin(file.header(), file.identity(), file.attributes()).ok());
  for (const ReadPark& park : parks) {
    std::vector<StoredExtent> extents;
    for (const ExtentInfo& info : park.record.extents) {
      StoredExtent extent;
      extent.info = info;
      extent.stored_bytes = info.raw_bytes;
      extents.push_back(extent);
    }
    FUZZ_CHECK((*writer)->AddPark(park.record, extents, park.payload).ok());
  }
  FUZZ_CHECK((*writer)->Commit().ok());
  std::vector<ReadPark> again;
  const auto read = Read(path, &again);
  FUZZ_CHECK(read.ok() && again == parks);
  FUZZ_CHECK(read->identity().layout == file.identity().layout);
  FUZZ_CHECK(read->attributes().name == file.attributes().name);
}

}  // namespace
}  // namespace parkade::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parkade;
  using namespace parkade::fuzz;
  static const Folder folder;
  Input input(data, size);
  const std::uint8_t switches = input.U8();
  std::string bytes(input.Rest());
  if ((switches & kLeaveChecksums) == 0) RightContainer(&bytes);
  Write(folder.File("input"), bytes);
  std::vector<ReadPark> parks;
  absl::StatusOr<ContainerFile> file = absl::UnknownError("not read");
  {
    const AllocationWatch watch;
    file = Read(folder.File("input"), &parks);
    FUZZ_CHECK(watch.largest_bytes() <= kSlackBytes + kLz4Growth * bytes.size());
  }
  if (file.ok()) WriteAgain(folder.File("again"), *file, parks);
  return 0;
}
