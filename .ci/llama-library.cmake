# Every project() of llama-cpp-python and llama.cpp includes this file first; .ci/llama-wheel asks for it. It leaves out
# what nothing here loads, more than half of all there is to compile.
# libmtmd reads images and sounds:
set(LLAVA_BUILD OFF CACHE BOOL "" FORCE)
# llama-common is shared by llama.cpp's own programs. llama-cpp-python forces it on just before it adds llama.cpp.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
