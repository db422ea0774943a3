// Where tests of the disk tier keep their folders.
#pragma once

#include <sys/statvfs.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace parkade::test {

// Where syncs cost nothing, if that has room: these tests open a database hundreds of times.
inline std::string DiskTestRoot() {
  struct statvfs info;
  if (::statvfs("/dev/shm", &info) == 0 &&
      static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize > (1ull << 30)) {
    return "/dev/shm";
  }
  return std::filesystem::temp_directory_path().string();
}

}  // namespace parkade::test
