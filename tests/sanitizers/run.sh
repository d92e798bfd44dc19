#!/usr/bin/env bash
# Builds the project again with a sanitizer or with the fuzzers, in a separate folder, and runs the tests for it.
#
#   run.sh SOURCE BUILD address-undefined | everything | thread | fuzz
#
# address-undefined runs what only these sanitizers find: parsers, files, the kernels' accesses, and random recipes
# through every command. everything runs all fast tests, most of which check arithmetic that other builds have checked.
set -euo pipefail
source=$1
kind=$3
build=$2/${kind/everything/address-undefined}

configure() { cmake -S "$source" -B "$build" -G Ninja -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON "$@"; }
# -Og and only line numbers: with the checks of undefined behaviour, gcc compiles nearly twice as fast as with -O1, and
# the tests take a fifth to a third longer.
light=(-DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-Og -g1")
# Without the checks of alignment, of objects' sizes, which the address sanitizer sees too, and of types, gcc compiles in
# three quarters of the time; `everything` has them.
undefined=shift,integer-divide-by-zero,unreachable,vla-bound,return,signed-integer-overflow,bounds,bool,enum
undefined+=,nonnull-attribute,returns-nonnull-attribute,pointer-overflow,builtin
run() { ctest --test-dir "$build" -j2 --output-on-failure "$@"; }

case $kind in
  address-undefined|everything)
    [ "$kind" != everything ] || undefined=undefined
    configure "${light[@]}" -DLONGSTRIDE_SANITIZE=address,$undefined -DLONGSTRIDE_UNITY=ON
    targets=(test_core test_datasets test_kernels test_train test_launch)
    select=(-R "^(test_(core|datasets|kernels|train)|launch.(parsers|random_recipes))$")
    [ "$kind" != everything ] || { targets=(fast_tests); select=(-L fast); }
    cmake --build "$build" --target longstride "${targets[@]}"
    # gcc 13 misaligns 64-byte vectors on the fake stack of detect_stack_use_after_return (gcc bug 110027). Open MPI and
    # its helpers keep memory until the end on purpose, so leaks are not detected.
    ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 run "${select[@]}" --no-tests=error
    ;;
  thread)
    configure "${light[@]}" -DLONGSTRIDE_SANITIZE=thread
    cmake --build "$build" --target test_threads
    "$build/tests/test_threads" --gtest_brief=1
    ;;
  fuzz)
    # The corpus and its neighbourhood: in 10 seconds most fuzzers reach nine tenths or more of the code that they reach in
    # 30.
    cmake -S "$source" -B "$build" --preset fuzz -DLONGSTRIDE_FUZZ_SECONDS=10 \
      -DLONGSTRIDE_UNITY=ON "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG"
    cmake --build "$build" --target fuzzers
    run -R '^(corpus|fuzz)' --no-tests=error
    ;;
  *) echo "unknown kind $kind" >&2; exit 2 ;;
esac
