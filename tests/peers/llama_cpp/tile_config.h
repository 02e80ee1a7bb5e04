// Up to GCC 12, `_tile_loadconfig` tells the compiler of 8 bytes where 64 are read. It drops the stores of the others, and
// the first tile ends the program with an illegal instruction. Included before llama.cpp's AMX code, which is left as it is.
#pragma once
#if defined(__AMX_TILE__) && !defined(__clang__) && __GNUC__ < 13
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)) : "memory")
#endif
