# The verbs of the project; `make help` lists them.

.PHONY: help build static install uninstall deb test-deb run test torture fmt lint fuzz bench golden
.PHONY: clean build-python build-library install-library uninstall-library

SECONDS ?= 60

# Where `make install` puts files. mount(8) finds its helpers in /sbin only; none are made if
# SBINDIR is empty. DROPIN=1 adds a link `btrfs` to the command.
export PREFIX ?= /usr/local
export SBINDIR ?= /sbin
export DESTDIR ?=
export DROPIN ?=
export BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/userbtrfs

help: ## List these verbs
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 19

build: ## Build the command
	cargo build --release --locked -p userbtrfs-cli

static: ## Build a command that needs no library (Rust's target x86_64-unknown-linux-musl, musl-gcc)
	scripts/static

install: ## Install what `make build` built: PREFIX=/usr/local, DESTDIR=, SBINDIR=/sbin, DROPIN=1
	@scripts/install

uninstall: ## Remove it again, with the same variables
	@scripts/install --remove

build-library: ## Build the C library
	cargo build --release --locked -p userbtrfs-capi

install-library: ## Install what `make build-library` built, its header and pkg-config file: PREFIX, DESTDIR
	@scripts/library

uninstall-library: ## Remove it again, with the same variables
	@scripts/library --remove

build-python: ## Build a wheel of the Python package in target/wheels (maturin)
	maturin build --release --locked --manifest-path crates/python/Cargo.toml

deb: build ## Make a Debian package in target/debian
	scripts/deb

test-deb: deb ## Install the package in a fresh Debian, use it, boot and remove it (root, debootstrap, systemd-nspawn)
	scripts/test-deb

run: ## Build, make images of a real tree, change and mount one, read them back and verify every file
	@scripts/demo

test: ## All checks of the CI share
	@scripts/test

torture: ## The same with every count in full; adds a row to docs/torture.md
	@scripts/torture

fmt: ## Format the sources
	cargo fmt --all

lint: ## Clippy and the style test
	cargo clippy --workspace --all-targets -- -D warnings
	cargo xtask tidy

fuzz: ## Fuzz the readers for SECONDS (60)
	cargo xtask fuzz --seconds $(SECONDS)

bench: ## Measure reading and writing beside the kernel (root)
	@scripts/bench

golden: ## Make the golden images anew with Linux's own tools (root)
	cargo xtask golden

clean: ## Remove what was built
	cargo clean
