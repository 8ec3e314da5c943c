# `make demo` shows the main job, `make test` installs what the tests need and
# passes them all. Both run on a bare machine that has a Rust toolchain.

# What an ordinary test run covers; `make slow` covers the rest.
TEST_SERVERS = 15 18
ALL_SERVERS = 9.6 10 11 12 13 14 15 16 17 18
FUZZ_SECONDS = 30
SOAK_SECONDS = 30
# With a SQLite of its own. The extension that is built then cannot be loaded, so it has a place apart.
SQLITE_LINKED = --no-default-features --features bundled --target-dir ext/sqlite/target/linked

.PHONY: build demo quick test slow check servers bench wheel test-wheel dist dist-test windows reference book

build:
	cargo build --release --locked

demo: build
	cargo run --quiet --locked --package pagewarden-demo -- target/release/pagewarden

check:
	cargo xtask check

# Between two edits: format, lints and unit tests with every format's conformance, without a server.
quick:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- --deny warnings
	PAGEWARDEN_SEEDS=2 ./scripts/tests.sh cargo test --workspace --locked --quiet --lib -- --skip servers::

servers:
	./scripts/needs.sh
	cargo xtask servers $(TEST_SERVERS) mysql

test: servers check
	PAGEWARDEN_REQUIRE=postgres,sqlite,mariadb,mysql PAGEWARDEN_SOAK_SECONDS=$(SOAK_SECONDS) \
		./scripts/tests.sh cargo test --workspace --locked
	PAGEWARDEN_REQUIRE=sqlite cargo test --locked --manifest-path ext/sqlite/Cargo.toml
	cargo test --locked --manifest-path ext/sqlite/Cargo.toml $(SQLITE_LINKED) --test power_loss --test linked
	./fuzz/run.sh $(FUZZ_SECONDS)

# Hours rather than minutes: every server version, large clusters, long fuzzing.
slow:
	./scripts/needs.sh
	cargo xtask servers $(ALL_SERVERS) mysql mariadb-11.8 mariadb-11.4 mariadb-10.2 mariadb-10.1 mysql-5.5
	cargo xtask servers versitygw minio moto azurite fake-gcs-server
	PAGEWARDEN_REQUIRE=postgres,sqlite,mariadb,mysql,stores PAGEWARDEN_TEST_VERSIONS=all \
		PAGEWARDEN_SEEDS=20 PAGEWARDEN_KILLS=50 PAGEWARDEN_PACK_KILLS=50 PAGEWARDEN_GUARD_KILLS=1000 \
		cargo test --workspace --locked -- --include-ignored
	./scripts/sqlite-programs.sh
	PAGEWARDEN_REQUIRE=sqlite PAGEWARDEN_STATEMENTS=10000 \
		cargo test --locked --manifest-path ext/sqlite/Cargo.toml
	PAGEWARDEN_POWER_LOSSES=3000 \
		cargo test --locked --manifest-path ext/sqlite/Cargo.toml $(SQLITE_LINKED) --test power_loss
	cargo xtask sqlite-suite
	PAGEWARDEN_REQUIRE=postgres,mariadb PAGEWARDEN_SOAK_SECONDS=3600 \
		cargo test --locked --package pagewarden-cli --test main -- running_cluster running_server
	PAGEWARDEN_REQUIRE=mysql PAGEWARDEN_SOAK_SECONDS=3600 \
		cargo test --locked --package pagewarden-cli --test main -- running_mysql
	PAGEWARDEN_REQUIRE=postgres,mariadb PAGEWARDEN_SOAK_SECONDS=5400 \
		cargo test --locked --package pagewarden-db --test main -- soak
	./fuzz/run.sh 1800
	PAGEWARDEN_SPARK=1 $(MAKE) test-wheel

# What pagewarden.exe says, by wine, is what the program of Linux says.
windows:
	./scripts/windows-test.sh

# The Python modules: docs/python.md, docs/sqlite-vfs.md.
wheel:
	./scripts/wheel.sh
	./scripts/wheel-sqlite.sh

test-wheel: wheel
	./scripts/test-wheel.sh
	./scripts/test-wheel-sqlite.sh

bench: build
	cargo run --release --locked --package pagewarden-bench -- kernel
	cargo run --release --locked --package pagewarden-bench -- check
	cargo run --release --locked --package pagewarden-bench -- sqlserver
	cargo run --release --locked --package pagewarden-bench -- compare
	cargo run --release --locked --manifest-path ext/sqlite/Cargo.toml $(SQLITE_LINKED) --example cost

# What is released, in target/dist.
dist:
	./scripts/dist.sh
	./scripts/dist-sqlite.sh

# Installs the package in a clean root and uses it.
dist-test:
	./scripts/dist-test.sh
	./scripts/dist-sqlite-test.sh

# The pages of the book that the program writes itself, and the book, if mdBook is installed.
reference:
	cargo run --quiet --locked --package pagewarden-cli -- man --markdown docs/commands

book: reference
	mdbook build docs
