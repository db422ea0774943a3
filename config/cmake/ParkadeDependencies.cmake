# Debian's packages; see config/packages.txt for their names.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto SSL)

function(parkade_system_library name header)
  find_library(PARKADE_${name}_LIBRARY NAMES ${name} REQUIRED)
  find_path(PARKADE_${name}_INCLUDE NAMES ${header} REQUIRED)
  add_library(parkade_system::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(parkade_system::${name} PROPERTIES
    IMPORTED_LOCATION ${PARKADE_${name}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${PARKADE_${name}_INCLUDE})
endfunction()

parkade_system_library(rocksdb rocksdb/db.h)
parkade_system_library(lz4 lz4.h)
parkade_system_library(zstd zstd.h)
parkade_system_library(xxhash xxhash.h)
parkade_system_library(prometheus-cpp-core prometheus/registry.h)

# Debian and Ubuntu build libxxhash with the choice at run time; other libraries may lack it.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES parkade_system::xxhash)
check_cxx_source_compiles(
  "#include <xxh_x86dispatch.h>
  int main() { return static_cast<int>(XXH3_128bits_dispatch(\"\", 0).low64); }"
  PARKADE_XXHASH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)
if(PARKADE_XXHASH_DISPATCH)
  target_compile_definitions(parkade_system::xxhash INTERFACE PARKADE_XXHASH_DISPATCH)
endif()
