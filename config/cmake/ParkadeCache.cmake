# Where dependencies that come as source are kept, for all build folders.
if(NOT PARKADE_CACHE_DIR)
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(PARKADE_CACHE_DIR "$ENV{XDG_CACHE_HOME}/parkade")
  else()
    set(PARKADE_CACHE_DIR "$ENV{HOME}/.cache/parkade")
  endif()
endif()
