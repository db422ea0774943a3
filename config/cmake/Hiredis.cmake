# hiredis 1.3, fetched once under the cache directory and built here as a static library.
#
# Offers:
#   parkade_hiredis  the client library with TLS: #include <hiredis/hiredis.h>
include(ParkadeCache)

set(PARKADE_HIREDIS_SOURCE "" CACHE PATH "Another hiredis checkout, its folder named hiredis")
set(PARKADE_HIREDIS_VERSION 3.3.0)

if(PARKADE_HIREDIS_SOURCE)
  get_filename_component(parkade_hiredis_folder ${PARKADE_HIREDIS_SOURCE} ABSOLUTE)
else()
  set(parkade_hiredis_folder ${PARKADE_CACHE_DIR}/deps/hiredis-${PARKADE_HIREDIS_VERSION}/hiredis)
  get_filename_component(parkade_hiredis_parent ${parkade_hiredis_folder} DIRECTORY)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/config/hiredis.sh ${parkade_hiredis_parent}
    RESULT_VARIABLE parkade_hiredis_failed)
  if(parkade_hiredis_failed)
    message(FATAL_ERROR "hiredis could not be fetched; the reason stands above.")
  endif()
endif()

if(NOT EXISTS ${parkade_hiredis_folder}/../hiredis/hiredis_ssl.h)
  message(FATAL_ERROR "No hiredis 1.x in ${parkade_hiredis_folder}, or the folder has another name")
endif()

# async.c, because the tables of functions for plain and for TLS connections name its functions.
set(parkade_hiredis_sources alloc async hiredis net read sds sockcompat ssl)
list(TRANSFORM parkade_hiredis_sources REPLACE "(.+)" "${parkade_hiredis_folder}/\\1.c")
add_library(parkade_hiredis STATIC ${parkade_hiredis_sources})
set_target_properties(parkade_hiredis PROPERTIES
  C_STANDARD 99 C_EXTENSIONS ON POSITION_INDEPENDENT_CODE ON)
target_compile_options(parkade_hiredis PRIVATE -O2 -w)
target_include_directories(parkade_hiredis SYSTEM PUBLIC ${parkade_hiredis_folder}/..)
target_link_libraries(parkade_hiredis PUBLIC OpenSSL::SSL OpenSSL::Crypto)
