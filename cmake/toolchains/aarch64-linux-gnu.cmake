# 64-bit ARM, by Debian's cross compiler, with libraries from script/sysroot-aarch64; programs run
# under user-mode emulation.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../../build/sysroot-aarch64 ABSOLUTE)
set(libraries ${sysroot}/usr/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig)

# The C library is the compiler's own; the sysroot holds only what comes on top.
set(CMAKE_C_FLAGS_INIT
    "-isystem ${sysroot}/usr/include -isystem ${sysroot}/usr/include/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-L${libraries} -Wl,-rpath-link,${libraries}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")

find_program(ROTA_QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
if(ROTA_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR
      ${ROTA_QEMU_AARCH64} -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${libraries})
endif()
