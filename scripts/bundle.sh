# Programs with the shared libraries that they use, stripped, in a tree that runs from anywhere. To be sourced:
#
#   bundle FOLDER PROGRAM..    FOLDER/bin and FOLDER/lib; what else lies in FOLDER stays
#
# The target brings glibc, libstdc++ and libgcc at least as new as this machine's, and the NVIDIA driver.

bundle_fail() {
  echo "bundle: $*" >&2
  exit 1
}

# Of glibc, of the compiler's run time and of the driver, the target has its own.
bundle_is_system() {
  case "$1" in
    ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.*) return 0 ;;
    libstdc++.so.* | libgcc_s.so.* | libcuda.so.* | libnvidia-*) return 0 ;;
    *) return 1 ;;
  esac
}

bundle() {
  local out=$1 program name path
  shift
  mkdir -p "$out/bin" "$out/lib"
  for program in "$@"; do
    # ldd lists what the libraries themselves need, too.
    while read -r name _ path _; do
      [ "$path" = not ] && bundle_fail "$program needs $name, which this machine has not"
      bundle_is_system "$name" && continue
      [ -f "$path" ] || continue  # linux-vdso has no file
      cp -nL "$path" "$out/lib/$name"
    done < <(ldd "$program" | grep '=>')
    cp "$program" "$out/bin/"
  done
  strip --strip-all "$out"/bin/*
  if [ -n "$(ls "$out/lib")" ]; then
    chmod u+w "$out"/lib/*
    strip --strip-unneeded "$out"/lib/*
  fi
  for program in "$out"/bin/*; do
    # Without it the libraries beside a program would not be found. An RPATH, unlike a RUNPATH, also
    # holds for what the libraries themselves need.
    # Read to its end: under pipefail what `grep -q` leaves unread would count as a failure of readelf.
    readelf -d "$program" | grep -E '\(RPATH\).*\$ORIGIN/\.\./lib' >/dev/null ||
      bundle_fail "$program has no RPATH \$ORIGIN/../lib; see gemmd_relocatable in cmake/targets.cmake"
    # The loader's own word for where each library comes from: a tree that leans on this machine's would fail there.
    while read -r name _ path _; do
      bundle_is_system "$name" || [ ! -f "$path" ] || [ "$(realpath "$path")" = "$(realpath "$out")/lib/$name" ] ||
        bundle_fail "$program takes $name from $path and not from the tree"
    done < <(env -i ldd "$program" | grep '=>')
  done
}
