# LlamaSequence on tiny models, and the rule of boundaries, without a server. The models are made
# when a test program that needs them is built; Python's packages gguf and numpy make them.
if(NOT TARGET parkade_engine_llama)
  return()
endif()
execute_process(COMMAND ${PARKADE_PYTHON} -c "import gguf, numpy"
  RESULT_VARIABLE parkade_no_gguf OUTPUT_QUIET ERROR_QUIET)
if(parkade_no_gguf)
  message(WARNING "Python's packages gguf and numpy are missing: no tests on models")
  return()
endif()

set(PARKADE_TEST_MODELS_FOLDER ${CMAKE_BINARY_DIR}/models)
set(parkade_make_models ${CMAKE_SOURCE_DIR}/tests/support/make_models.py)
set(parkade_models "")
foreach(kind dense dense_lora_a dense_lora_b dense_vector_a dense_vector_b mrope mrope_projector
    window window_projector recurrent hybrid hybrid_window)
  list(APPEND parkade_models ${PARKADE_TEST_MODELS_FOLDER}/${kind}.gguf)
endforeach()
add_custom_command(OUTPUT ${parkade_models}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${parkade_models}
  COMMAND ${PARKADE_PYTHON} ${parkade_make_models} ${PARKADE_TEST_MODELS_FOLDER}
  DEPENDS ${parkade_make_models})
add_custom_target(parkade_test_models DEPENDS ${parkade_models})

foreach(test boundaries copiers state identity stages slices media)
  parkade_test(llama_${test}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/llama_${test}_test.cc
    DEPENDS parkade_engine_llama
    LABELS e2e)
  add_dependencies(llama_${test}_test parkade_test_models)
  target_compile_definitions(llama_${test}_test PRIVATE
    PARKADE_TEST_MODELS_FOLDER="${PARKADE_TEST_MODELS_FOLDER}"
    PARKADE_TEST_RPC_SERVER_PROGRAM="${CMAKE_BINARY_DIR}/bin/ggml-rpc-server")
endforeach()
# What llama.cpp's own libraries call by its wrapped name lies in an object that nothing else of
# this test asks for.
target_link_options(llama_media_test PRIVATE -Wl,--undefined=__wrap_llama_memory_seq_add)
