#!/usr/bin/env bash
# The examples in other languages, built and run with what the distribution has. 77: it has not enough, and why.
#
#   clients.sh go|javascript|rust ADDRESS    beside a daemon: tests/e2e/with_daemon.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
language=$1 address=$2
example=$root/examples/clients/$language
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
  echo "skipped: $*"
  exit 77
}

go_example() {
  local code=/usr/share/gocode/src
  command -v go >/dev/null || skip "no go; the package is golang-go"
  for plugin in protoc-gen-go protoc-gen-go-grpc; do
    command -v "$plugin" >/dev/null || skip "no $plugin; the package has that name"
  done
  [ -d $code/google.golang.org/grpc ] || skip "no gRPC for Go; the package is golang-google-grpc-dev"
  local path=$work:/usr/share/gocode
  # Debian 12's gRPC comes with a runtime that is too old for what its protoc-gen-go writes; the newer one cannot be
  # installed beside it, but unpacked.
  if [ ! -d $code/github.com/golang/protobuf/internal ]; then
    (cd "$work" && apt-get download -qq golang-github-golang-protobuf-1-5-dev >/dev/null 2>&1 && dpkg -x ./*.deb newer) ||
      skip "golang-github-golang-protobuf-1-5-dev cannot be had"
    path=$work:$work/newer/usr/share/gocode:/usr/share/gocode
  fi
  mkdir "$work/src"
  protoc --proto_path="$root/proto" --go_out="$work/src" --go-grpc_out="$work/src" "$root"/proto/gemmd/v1/*.proto
  (cd "$example" && GO111MODULE=off GOPATH=$path GOFLAGS= go build -o "$work/example" .)
  "$work/example" "$address"
}

javascript_example() {
  command -v node >/dev/null || skip "no node; the package is nodejs"
  node "$example/main.mjs" "$address"
}

rust_example() {
  local registry=/usr/share/cargo/registry
  command -v cargo >/dev/null || skip "no cargo; the package has that name"
  for crate in h2 prost prost-build tokio; do
    compgen -G "$registry/$crate-[0-9]*" >/dev/null || skip "no crate $crate; the package is librust-$crate-dev"
  done
  mkdir -p "$work/examples/clients" "$work/rust/.cargo"
  cp -r "$example" "$work/examples/clients/"
  cp -r "$root/proto" "$work/"
  cd "$work/examples/clients/rust"
  cargo --config 'source.crates-io.replace-with="system"' --config "source.system.directory=\"$registry\"" \
    run --quiet --offline -- "$address"
}

lines=$(wc -l <"$(find "$example" -name 'main.*')")
[ "$lines" -lt 60 ] || { echo "$example has $lines lines; an example has less than 60"; exit 1; }
said=$("${language}_example") || { status=$?; echo "$said"; exit $status; }
echo "$said"
grep -Eq '^\[?1(\.0)?,? 6(\.0)?\]? by [a-z0-9_]+ on cpu:0$' <<<"$said"
