# Everything a developer runs. "make" alone explains the targets.

SHELL         := /bin/bash
.SHELLFLAGS   := -eu -o pipefail -c
MAKEFLAGS     += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go

# What is expensive to make and safe to delete is kept outside of the tree.
cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/capstan
logs  := $(cache)/logs$(CURDIR)

# Variables for the command line. The packages whose tests take longest come
# first: at the end they would run alone.
PACKAGES ?= $(addprefix ./integration/tests/,stories agenttest faults apppage) ./...#    test: which Go packages
AT_ONCE  ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))#  test: how many packages; tests wait for half of their time
RACE     ?=#          test: 1 uses the race detector
RUN      ?=#          bench: comma-separated benchmarks such as B01,B13; empty: all but GIT
IMAGES    ?=#         images: which, comma-separated; empty: all
PLATFORMS ?=#         images: such as linux/amd64; empty: linux/amd64 and linux/arm64
DURATION ?= 1h#       soak: how long
FUZZ     ?= 10s#      fuzz: how long to look at each target
SOAK     ?= ./integration/... ./hub/access ./agent/secrets/sops#  soak: which Go packages

# The console, embedded in the hub.
web       := $(wildcard web/package.json)
web_files := $(if $(web),$(shell find web/src web/public web/docs web/index.html web/package.json web/package-lock.json web/*.ts docs -type f -not -path 'docs/decisions/*' 2>/dev/null) hub/api/openapi.yaml)
installed := web/node_modules/.package-lock.json
console   := web/dist/index.html

# Programs, tests and what the linters read are compiled in one way, so that each
# package is compiled once, and found in Go's cache by every checkout. The local
# cluster is built in the same way (integration/rigs/build).
export CGO_ENABLED := $(if $(RACE),1,0)
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

go_build = @mkdir -p bin; set -x; CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -ldflags='-s -w' -o bin/
mains   := ./hub/cmd/capstan-hub ./agent/cmd/capstan-agent ./cli/cmd/capstan

##@ Everyday

.PHONY: help
help: ## Explain the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: packages ## Start everything with a sample repository and keep running (DEMO_ONCE=1 DEMO_CLUSTERS=2 DEMO_KUBECONFIG=file)
	@mkdir -p bin; CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -o bin/demo ./integration/tools/demo; exec bin/demo

.PHONY: build
build: console ## Build bin/capstan-hub, bin/capstan-agent and bin/capstan
	$(go_build) $(mains)

.PHONY: images
images: packages $(if $(web),$(console)) web/dist/.gitkeep ## Build container images as OCI layouts in bin/images, without a container engine (IMAGES=capstan-agent PLATFORMS=linux/amd64)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(GO) run ./integration/tools/image -out bin/images $(if $(IMAGES),-images $(IMAGES)) $(if $(PLATFORMS),-platforms $(PLATFORMS))

.PHONY: test
# Never from the cache of go test: many tests run the binaries that were built
# before them, which that cache does not count among their inputs.
test: packages test-browser build ## Run every test (PACKAGES=./hub/plan RACE=1)
	@$(GO) run ./integration/tools/prepare cluster >/dev/null
	@$(GO) run ./integration/tools/prepare registry >/dev/null
	@status=0; \
	$(GO) run ./integration/tools/gotest -log $(logs)/go.json -- -count=1 -p $(AT_ONCE) -timeout 60m $(if $(RACE),-race) $(PACKAGES) || status=1; \
	$(if $(web),$(MAKE) test-web || status=1;) \
	exit $$status

.PHONY: test-web
test-web: $(installed) build ## Run the console's tests alone
	@mkdir -p $(logs)
	cd web && npx vitest run --reporter=default --reporter=json --outputFile.json=$(logs)/vitest.json

.PHONY: fuzz
fuzz: packages web/dist/.gitkeep ## Look for inputs that break the fuzz targets (FUZZ=1m TARGET=shared/manifest)
	@$(GO) run ./integration/tools/fuzz -time $(FUZZ) -cache $(cache)/fuzz $(if $(TARGET),-run $(TARGET))

.PHONY: lint
lint: packages web/dist/.gitkeep ## Check format, vet, imports, generated code, known vulnerabilities and the console's lint
	@found=$$(find . -name '*.go' -not -path './web/node_modules/*' -not -path './.git/*' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$found" ]; then printf 'not formatted (gofmt -w mends it):\n%s\n' "$$found" >&2; exit 1; fi
	$(GO) vet ./...
	@linter=$$($(GO) run ./integration/tools/prepare linter); $$linter run --allow-parallel-runners ./...
	@$(GO) test -count=1 -run '^(TestImports|TestTheAgentCarries|TestTheCommandLine|TestContributing)' ./integration
	@$(MAKE) generate-check
	$(if $(web),@$(MAKE) lint-web)
	@cd integration/tools/lint && $(GO) vet ./... && $(GO) test -count=1 ./... && $(GO) run ./titles -root ../../.. && $(GO) run ./words -root ../../.. && $(GO) run ./sizes -root ../../..
	@$(MAKE) vulns

.PHONY: vulns
vulns: packages ## Look for known vulnerabilities in what the programs call and the console ships
	@cd integration/tools/vulns && $(GO) vet ./... && $(GO) test -count=1 ./... && $(GO) run . -root ../../..

.PHONY: features
features: ## Say which behaviours of docs/features.csv the last test run has shown (MISSING=1: which not)
	@$(GO) run ./integration/tools/features $(if $(MISSING),-missing) $(logs)/go.json $(if $(web),$(logs)/vitest.json)

##@ Code that is generated

.PHONY: generate
generate: packages $(if $(web),$(installed)) ## Make the generated code anew
	@tools=$$($(GO) run ./integration/tools/prepare tools); export PATH="$$tools:$$PATH"; set -x; \
	(cd proto && buf lint && buf generate); \
	(cd shared/apimodel && oapi-codegen --config model.cfg.yaml ../../hub/api/openapi.yaml); \
	(cd hub/api/gen && oapi-codegen --config server.cfg.yaml ../openapi.yaml); \
	(cd cli/client && oapi-codegen --config client.cfg.yaml ../../hub/api/openapi.yaml); \
	$(GO) run ./integration/tools/reference
	$(if $(web),cd web && npm run --silent generate)

# The files themselves are compared, so that this works with changes that are
# not committed yet.
generated = grep -rlE --include='*.go' --include='*.gen.ts' --include='*.md' --exclude-dir=node_modules '^(// Code generated|<!-- Code generated|// Package .* provides primitives|.*auto-generated by openapi)' proto shared hub cli web/src docs/cli | sort | xargs sha256sum

.PHONY: generate-check
generate-check:
	@before=$$($(generated)); $(MAKE) generate; after=$$($(generated)); \
	if [ "$$before" != "$$after" ]; then \
		printf 'generated code was not current; it is now:\n' >&2; \
		diff <(echo "$$before") <(echo "$$after") | awk '/^[<>]/ { print "  " $$3 }' | sort -u >&2; exit 1; \
	fi

.PHONY: screenshots
screenshots: packages test-browser build ## Take pictures of the console's pages, light and dark, into bin/screenshots and docs/screenshots
	@integration/packages japanese
	@mkdir -p bin/screenshots docs/screenshots
	CAPSTAN_SHOTS=$(CURDIR)/bin/screenshots CAPSTAN_PICTURES=$(CURDIR)/docs/screenshots $(GO) test -tags soak -count=1 -timeout 50m ./integration/tests/journeys -run '^Test(Journeys|States)$$'
	CAPSTAN_SHOTS=$(CURDIR)/bin/screenshots $(GO) test -count=1 -timeout 30m ./integration/tests/stories -run '^TestConsole$$'

##@ Measuring

.PHONY: bench
bench: packages build ## Measure against real parts and print a table (RUN=B01,B13)
	$(GO) run ./integration/tools/bench -bin bin $(if $(RUN),-run $(RUN))

.PHONY: soak
soak: packages build ## Fuzz, then repeat the integration tests, and those of access and SOPS, until DURATION is over or one fails (DURATION=8h)
	@$(MAKE) fuzz FUZZ=1m
	@$(GO) run ./integration/tools/prepare cluster >/dev/null
	@$(GO) run ./integration/tools/prepare registry >/dev/null
	@$(GO) run ./integration/tools/gotest -for $(DURATION) -log $(logs)/soak.json -- -tags soak -count=1 -timeout 170m $(SOAK)

##@ Cleaning

.PHONY: clean
clean: ## Remove what was built in the tree
	rm -rf bin web/node_modules
	find web/dist -mindepth 1 -not -name .gitkeep -delete 2>/dev/null || true

.PHONY: clean-cache
clean-cache: ## Remove what was built outside of it: local cluster, code generators, logs
	rm -rf "$(cache)"

# Steps of the targets above.

.PHONY: console
console: $(if $(web),$(console)) web/dist/.gitkeep

# What integration/tools/demo builds: all binaries, and before that those and most of
# the hub that do not need the console.
.PHONY: demo-binaries demo-libraries
demo-binaries:
	$(go_build) $(mains) ./integration/tools/demo/capstan-demo

demo-libraries:
	$(go_build) ./agent/cmd/capstan-agent ./cli/cmd/capstan ./integration/tools/demo/capstan-demo
	CGO_ENABLED=0 $(GO) build -trimpath ./hub/api ./hub/store/... ./hub/render/... ./hub/source/... ./hub/dispatch/... ./hub/identity

.PHONY: packages
packages:
	@integration/packages go git gpg sshd postgres slapd $(if $(web),node)

# TestConsole of integration/tests/stories runs the specs of web/e2e.
.PHONY: test-browser
test-browser:
	$(if $(web),@integration/packages chromium)

.PHONY: lint-web
lint-web: $(installed)
	cd web && npm run --silent lint

# npm writes this file last, so it says what was installed.
$(installed): web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@

# The hub embeds this folder, so it has to be there before the console is.
web/dist/.gitkeep:
	@mkdir -p web/dist && touch $@

$(console): $(installed) $(web_files)
	cd web && npm run --silent build
	@touch $@ web/dist/.gitkeep
