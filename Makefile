# The verbs of the project; `make help` lists them.

.PHONY: help run test torture fmt lint fuzz bench golden clean

SECONDS ?= 60

help: ## List these verbs
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

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
