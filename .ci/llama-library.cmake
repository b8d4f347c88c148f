# Every project() of llama-cpp-python and llama.cpp includes this file first; .ci/llama-wheel asks for it. It leaves out
# what nothing here loads, about half of all there is to compile.
# llama-common is shared by llama.cpp's own programs. llama-cpp-python forces it on just before it adds llama.cpp.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
# Videos would be read by an ffmpeg that it finds on the machine.
set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)
# libmtmd reads images. Its fifty files share their headers: a few at once, they compile in a quarter of the time. Two
# of them refuse to be with the others.
function(compile_libmtmd_together)
    if(TARGET mtmd)
        set(folder ${CMAKE_SOURCE_DIR}/vendor/llama.cpp/tools/mtmd)
        set_target_properties(mtmd PROPERTIES UNITY_BUILD ON)
        set_source_files_properties(${folder}/mtmd-helper.cpp ${folder}/mtmd-helper-gen.cpp TARGET_DIRECTORY mtmd
            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
endfunction()
if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
    cmake_language(DEFER CALL compile_libmtmd_together)
endif()
