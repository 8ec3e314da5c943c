# Sourced by the scripts that make what is released: puts the compiler and linker for other machines into
# target/dist-tools, and on the path. They are zig (Python's package ziglang) and cargo-zigbuild.
# Expects `root`, the folder of the project.

tools=$root/target/dist-tools
# No folder of the machine that built it is in a binary.
export RUSTFLAGS="--remap-path-prefix=$root=/pagewarden --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"

tool() { # NAME VERSION
    [ -x "$tools/bin/$1" ] || RUSTFLAGS='' cargo install --quiet --locked --root "$tools" "$1" --version "$2"
}
# The standard library for a target.
library() { # TARGET
    rustup target add --toolchain stable "$1" >/dev/null 2>&1 || rustup target add "$1"
}
mkdir -p "$tools/bin"
export PATH="$tools/bin:$PATH"
if [ ! -x "$tools/python/bin/python" ]; then
    python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet ziglang==0.15.1
fi
export CARGO_ZIGBUILD_PYTHON_PATH=$tools/python/bin/python
tool cargo-zigbuild 0.24.1
